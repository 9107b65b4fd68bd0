"""`pbodl up --engine ray --source kafka`: a broker, traffic, a cluster that learns, and a server, on one machine."""
