"""Streams: models published while they learn."""
