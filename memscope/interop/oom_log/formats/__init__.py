"""How each program words an out-of-memory error: one file per family of programs."""
