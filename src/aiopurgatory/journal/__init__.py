"""Write a row for every operation to Parquet files: pip install "aiopurgatory[journal]"

Its module ``schema`` describes the columns.
"""

try:
    import anyio as _anyio  # noqa: F401
    import numpy as _numpy  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as exc:
    raise ImportError(
        'aiopurgatory.journal needs anyio, numpy and pyarrow: pip install "aiopurgatory[journal]"'
    ) from exc

from .journal import Journal, JournalStatistics

__all__ = ["Journal", "JournalStatistics"]
