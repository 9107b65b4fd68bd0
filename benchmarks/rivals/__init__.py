"""The libraries in the comparison, each configured as its users would."""
