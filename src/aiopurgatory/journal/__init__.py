"""Write a row for every operation to Parquet files: pip install "aiopurgatory[journal]"

Its module ``schema`` describes the columns.
"""

from ..arguments import extra

with extra("journal"):
    from .journal import Journal, JournalStatistics

__all__ = ["Journal", "JournalStatistics"]
