"""The schemas of public click logs."""
