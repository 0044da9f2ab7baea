"""A Redis server in memory, as far as the channels need one.

redis_keys        values, expiry and the commands on them
glob_pattern      the patterns of PSUBSCRIBE
simulated_redis   sessions, publish and subscribe, the order of replies and pushes
redis_node        that server as a node of the simulated network
"""
