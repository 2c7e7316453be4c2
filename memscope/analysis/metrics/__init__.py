"""The table of readings, and how each one is computed."""
