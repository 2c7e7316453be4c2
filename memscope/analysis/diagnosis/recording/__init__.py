"""Why memory ran out, from a recording."""
