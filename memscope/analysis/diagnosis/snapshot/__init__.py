"""Why memory ran out, from a memory snapshot of torch."""
