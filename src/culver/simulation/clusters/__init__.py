"""Brokers in clusters at the level of messages, with the cores of production, and their rivals.

cluster_world    brokers in clusters and rings, with and without dynamic load balancing
broker_rivals    a tree of brokers, and a distributed hash table
"""
