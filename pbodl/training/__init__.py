"""Learning from a log: progressive metrics, the training loop, its configuration and its report."""
