"""What a recording says: pure functions from its events to frozen results."""
