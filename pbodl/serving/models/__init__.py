"""The models that a server serves: followed in their folders, shared with the workers, and prepared for requests."""
