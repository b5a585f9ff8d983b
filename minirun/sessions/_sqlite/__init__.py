"""Sessions in one SQLite file, and what may stand in the same file."""
