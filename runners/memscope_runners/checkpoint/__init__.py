"""Models on disk: found, fetched, read, quantized and kept as q8."""
