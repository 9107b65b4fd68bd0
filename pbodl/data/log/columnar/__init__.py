"""Logs that hold columns, not lines: Parquet, Arrow files, and rows in memory."""
