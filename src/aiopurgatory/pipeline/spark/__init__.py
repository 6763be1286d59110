"""Spark: the session, the Java that it runs on, and the file systems that it reaches."""
