"""A recording folded once, batch by batch, into what every metric and view is made of."""
