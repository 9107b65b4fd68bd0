"""Tests of the interface for Python."""
