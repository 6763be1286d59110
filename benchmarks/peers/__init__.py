"""Implement the competitors, each from its description and at its best settings."""
