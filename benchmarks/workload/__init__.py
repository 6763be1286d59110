"""Read a trace of requests, and play it to a competitor."""
