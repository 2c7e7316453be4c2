"""The report: one self-contained HTML file that works offline."""
