"""Decisions: which candidates are shown in which slots, with which probability, and the log of it."""
