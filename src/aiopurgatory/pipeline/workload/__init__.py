"""Models of a workload, how they are estimated, and traces."""
