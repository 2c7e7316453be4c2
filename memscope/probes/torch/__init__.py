"""Readings of torch's allocator, its out-of-memory errors and its settings."""
