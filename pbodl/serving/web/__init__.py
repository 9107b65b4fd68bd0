"""Requests and answers over HTTP: connections, the queue, messages, limits and metrics."""
