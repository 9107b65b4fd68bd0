"""Where events come from and go to: files, Redis streams, Kafka topics."""
