"""Parallel training (PBODL §2.3). Read it in this order: message, worker, shard, simulated, then threads/ and cluster/.

A worker turns a minibatch into a message. A shard of the parameter server multiplies messages into its weights. `simulated` runs
many of both in turns, in one process. `threads` is the shortcut for one machine, where the workers share the server's memory.
`cluster` spreads workers and shards over processes and machines; only its `ray_actors` knows Ray.
"""
