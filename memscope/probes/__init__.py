"""Readings taken beside the program, each able to fail alone."""
