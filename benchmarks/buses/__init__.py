"""Processes that share a key bus, and their measurements."""
