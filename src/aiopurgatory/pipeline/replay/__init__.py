"""Replays of a trace by the library's own timer and core, and by Kafka's old design."""
