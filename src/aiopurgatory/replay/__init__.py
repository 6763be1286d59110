"""Replays a trace on the library's own timer and core, with a virtual clock."""
