"""The libraries we are measured against, each set up as its own users would."""
