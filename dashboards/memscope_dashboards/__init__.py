"""What people look at: the live view in a terminal and the report in a browser."""
