"""What bench_pipeline.py runs: a journal, the pipeline, its peer, and the CPU time of a whole tree of processes."""
