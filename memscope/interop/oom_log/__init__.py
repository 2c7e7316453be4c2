"""Out-of-memory messages in the logs of other programs."""
