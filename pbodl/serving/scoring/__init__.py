"""From a request's candidates to click-through rates."""
