"""What the live view is made of: each widget turns a snapshot into lines."""
