"""What a log of decisions tells: the value of policies that did not make it, and live comparisons of models."""
