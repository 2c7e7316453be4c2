"""Readings of the driver: cards, processes, and the machine as a whole."""
