"""Reading a recording: damaged or cut, while it grows, and all processes of a run."""
