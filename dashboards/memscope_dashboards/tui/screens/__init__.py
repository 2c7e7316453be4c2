"""What fills the terminal: the live view, all metrics, help."""
