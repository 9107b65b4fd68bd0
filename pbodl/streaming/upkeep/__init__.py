"""Upkeep of run folders: migrations of the schema, and the doctor."""
