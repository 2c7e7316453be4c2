"""A recording folded batch by batch into the timeline that every metric and view reads."""
