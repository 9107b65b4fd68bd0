"""Several threads of one process train one model."""
