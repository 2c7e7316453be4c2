"""Why memory ran out: one explanation from a log, a snapshot or a recording."""
