"""The table of metrics, and how each one is computed."""
