"""The bytes of a recording: schema, header, batches, checksums. For writer and reader."""
