"""Serving: scores with their uncertainty over HTTP, from a model that a trainer keeps improving."""
