"""The report: one self-contained file that a browser opens offline."""
