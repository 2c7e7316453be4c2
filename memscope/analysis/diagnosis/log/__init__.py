"""Why memory ran out, from the text of a log."""
