"""Parallel training (PBODL §2.3). Read it in this order: message, worker, server, cluster, local, then on_ray (docs/parallel.md).

A worker turns a minibatch into a message, a server multiplies messages into the weights, a cluster runs many of both in turns;
`local` is the short cut for one machine, where the workers are threads that share the server's memory; `on_ray` spreads workers and
servers over processes and machines, by way of `coordinator`, `lane` and `durable`, which know nothing of Ray.
"""
