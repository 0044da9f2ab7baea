"""The layout of brokers, worked out alike by all of them.

cluster_layout      which cluster and which ring every broker is in
cluster_count       how many clusters cost the least traffic
"""
