"""Brokers in clusters, with the cores of production, and their rivals.

simulated_cluster_site   a site that routes by clusters
cluster_scenarios        what happens to such sites

cluster_world            brokers at the level of messages, with and without dynamic load balancing
broker_rivals            a tree of brokers, and a distributed hash table
"""
