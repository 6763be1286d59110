"""The parts of bench_pipeline.py: a journal, the pipeline, its peer, and the CPU time of a process tree."""
