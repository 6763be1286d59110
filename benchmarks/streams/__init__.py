"""The processes of bench_streams: a server that streams events to listeners, and the listeners."""
