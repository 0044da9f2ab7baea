"""The decisions of cluster-based publish/subscribe (Jafarpour and others, 2009), without input or output.

cluster_layout      which cluster and which ring every broker is in
cluster_count       how many clusters cost the least traffic
event_division      parts of the event space, each with a clustering of its own
event_popularity    measures where publications and subscriptions fall, and proposes a division
load_messages       what brokers say to one another about their load
load_rates          messages a second, and how many a broker can handle
known_loads         what a broker knows of the load of others
share_turns         turns among candidates in proportion to their weights
subscription_pause  holds subscriptions back where there are too many of them
load_balance        hands load over to other brokers while there is too much of it

Routing, with the promises of `core`:

cluster_node          one site: all of what follows
cluster_messages      what sites say to one another
cluster_instructions  what the shell is asked to do
link_flood            link states
cluster_membership    the own cluster, and the predicates that are known there
member_streams        what a site gets: its claims, and the parts that it takes
cluster_origin        what a site sends
cluster_claims        who gets its events, through which cluster
cluster_streams       who carries them, and how far the cursors are
carriage_table        what a site carries for others
carriage              one origin's events for one cluster
window_parts          windows divided into packets, and put together
"""
