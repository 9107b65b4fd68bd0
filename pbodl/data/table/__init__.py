"""The table that finds a row for every feature key."""
