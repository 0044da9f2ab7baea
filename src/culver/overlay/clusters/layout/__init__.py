"""The layout of brokers, worked out alike by all of them.

cluster_layout      which cluster and which ring every broker is in
cluster_count       how many clusters cost the least traffic
event_division      parts of the event space, each with a clustering of its own
event_popularity    measures where publications and subscriptions fall, and proposes a division
"""
