"""The live view: follows a recording while it grows, in a terminal."""
