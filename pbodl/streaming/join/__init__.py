"""Impressions joined with their late clicks."""
