"""What changed between two recordings or two snapshots."""
