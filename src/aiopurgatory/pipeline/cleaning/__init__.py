"""From files of a journal to good rows: reading, judging, and publishing versions of a table."""
