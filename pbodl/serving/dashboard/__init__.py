"""The dashboard: a page of the server that shows the model live and lets people try it."""
