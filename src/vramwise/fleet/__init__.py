"""What the jobs of a cluster made of their GPUs: asked of Prometheus, one Parquet row a job, answered by DuckDB."""
