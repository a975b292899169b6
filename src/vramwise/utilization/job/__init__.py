"""Traces of a whole job: a map over files to small Parquet tables, and a reduce over ranks by DuckDB."""
