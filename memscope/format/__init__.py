"""The bytes of a recording: schema, header, batches, checksums and names of segments.

Recorder and reader share this package. It imports nothing of memscope but events and errors.
"""
