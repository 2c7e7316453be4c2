"""A snapshot's trace of allocator events, replayed."""
