"""A program of someone else, recorded in its own interpreter, with the processes it starts."""
