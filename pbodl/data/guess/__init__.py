"""Guessing the schema of a log that nobody has described yet."""
