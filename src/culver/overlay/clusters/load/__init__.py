"""Load balancing among the brokers of a cluster.

broker_load         how much a broker has to do, and when it is too much; start here
stream_balance      hands whole streams over: what a node does
load_balance        hands single publications over: what the paper does, for its figures
load_messages       what brokers say to one another about their load
load_rates          messages a second, and how many a broker can handle
known_loads         what a broker knows of the load of others
share_turns         turns among candidates in proportion to their weights
subscription_pause  holds subscriptions back where there are too many of them
"""
