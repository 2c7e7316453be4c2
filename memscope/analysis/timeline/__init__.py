"""A recording folded once, batch by batch, into what every reading and view is made of."""
