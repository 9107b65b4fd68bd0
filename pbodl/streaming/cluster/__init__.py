"""`pbodl online --engine ray`: many stream workers and a sharded parameter server learn one model.

Read it in this order: partition_list, partition_learner, stream_worker, stream_actor, cluster_snapshot, cluster_service.
"""
