"""The ways to route, as the shell sees them. `plugins.ROUTINGS` has them by name.

routing_strategy   what every one offers; start here
drp_strategy       `b-drp`
cluster_strategy   `clusters`, with
    cluster_store      its claims and the predicates of other sites, on disk
    member_matcher     the matching of what it carries for others
"""
