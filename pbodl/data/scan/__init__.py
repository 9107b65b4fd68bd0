"""Compiled scanners: JSON and msgpack bytes become feature keys without Python objects."""
