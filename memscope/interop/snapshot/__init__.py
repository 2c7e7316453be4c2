"""Memory snapshots that torch writes, read as tables and never unpickled."""
