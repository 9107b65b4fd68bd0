"""The online A/B experiment in a simulated ad market (the paper's Tables 3 and 4)."""
