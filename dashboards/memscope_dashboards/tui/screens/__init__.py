"""The screens: the live view, the memory, all metrics, help."""
