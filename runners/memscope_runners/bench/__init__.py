"""Measurements that print a table and JSON; never part of the tests."""
