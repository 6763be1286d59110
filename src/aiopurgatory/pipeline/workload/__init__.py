"""Models of a workload, their estimates, and traces made of them."""
