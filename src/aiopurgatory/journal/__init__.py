"""The journal: what happened to every operation, as Parquet files."""
