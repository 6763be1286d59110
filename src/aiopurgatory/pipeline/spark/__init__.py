"""Spark: its session, its Java, and the file systems that it reaches."""
