"""Writes a recording: takes events on the program's thread and writes them on its own.

A recorder takes probes instead of importing them. Probes, launch, our runner and the pytest plugin
may import this package; it imports format, reader and the log readers of interop.
"""
