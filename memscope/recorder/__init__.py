"""Writing a recording: from one append on the program's thread to segments on disk."""
