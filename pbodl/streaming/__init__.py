"""Learning from live streams: sources, the join with late clicks, the watchdog, and the service behind `pbodl online`."""
