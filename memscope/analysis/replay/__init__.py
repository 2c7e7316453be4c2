"""Replay of the allocator events in a snapshot's trace."""
