"""What fills the terminal: the live view, all figures, help."""
