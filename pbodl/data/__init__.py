"""From a click log to numbers: the schema, feature keys, batches of samples, the table of rows by key."""
