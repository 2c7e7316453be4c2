"""Results as plain text for a terminal or a pipe."""
