"""Experiments: models side by side on the same stream."""
