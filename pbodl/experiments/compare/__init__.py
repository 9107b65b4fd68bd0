"""Our models and other libraries side by side on a user's own log."""
