"""The table of metrics, and how each metric is computed."""
