"""What PBODL asks of the operating system: files, signals, threads."""
