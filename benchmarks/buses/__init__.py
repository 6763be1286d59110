"""Processes that share a key bus, and what is measured of them."""
