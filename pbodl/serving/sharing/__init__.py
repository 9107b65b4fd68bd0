"""A model on several servers: each serves a share of its rows, and a router scores with the rows that a request needs."""
