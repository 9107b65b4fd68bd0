"""Parallel training (PBODL §2.3). Read it in this order: message, worker, server, cluster, local.

A worker turns a minibatch into a message, a server multiplies messages into the weights, a cluster runs many of both in turns;
`local` is the short cut for one machine, where the workers are threads that share the server's memory.
"""
