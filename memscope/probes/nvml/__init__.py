"""Readings of the NVIDIA driver: cards, processes, and the whole machine."""
