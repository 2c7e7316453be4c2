"""Limits, verdicts and baselines."""
