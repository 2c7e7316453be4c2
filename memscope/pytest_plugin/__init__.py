"""Memory health as a test that fails."""
