"""Reading click logs: CSV, JSONL and Parquet files become chunks of samples."""
