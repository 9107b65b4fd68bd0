"""The dashboard: a page of the server on which a person watches the model and tries it."""
