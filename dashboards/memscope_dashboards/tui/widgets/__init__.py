"""The widgets of the live view. Each turns a snapshot into lines."""
