"""Turn the lines that a run measured into RESULTS.md."""
