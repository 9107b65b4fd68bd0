"""Choosing a model's settings by progressive log loss."""
