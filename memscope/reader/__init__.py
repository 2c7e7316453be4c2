"""Reads recordings: whole, cut, damaged or still growing, and all processes of one run.

It checks bytes and yields batches of raw events; analysis makes sense of them. It imports only
format. Analysis, the verbs and exports may import it.
"""
