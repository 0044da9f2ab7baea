"""The decisions of cluster-based publish/subscribe (Jafarpour and others, 2009), without input or output.

layout/   which cluster and ring a broker is in, and how many clusters there are
load/     load that brokers hand over to one another

Routing, with the promises of `core`:

cluster_node          one site: all of what follows
cluster_messages      what sites say to one another
cluster_instructions  what the shell is asked to do
cluster_membership    the own clusters, and the predicates that are known there
origin_clustering     how many clusters there are for the own events
member_streams        what a site gets: its claims, and the parts that it takes
cluster_origin        what a site sends
cluster_claims        who gets its events, through which cluster
cluster_streams       who carries them, and how far the cursors are
carriage_table        what a site carries for others
carriage              one origin's events for one cluster
load_exchange         load that brokers tell one another of
window_parts          windows divided into packets, and put together
"""
