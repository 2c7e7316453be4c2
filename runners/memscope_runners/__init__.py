"""The int8 language-model decoder whose weights live behind a residency window."""
