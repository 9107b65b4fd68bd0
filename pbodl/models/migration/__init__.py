"""A living schema: a model that has learned gets another schema or shape, and keeps what it knows."""
