"""Load balancing among the brokers of a cluster.

load_balance        hands load over to other brokers while there is too much of it; start here
load_messages       what brokers say to one another about their load
load_rates          messages a second, and how many a broker can handle
known_loads         what a broker knows of the load of others
share_turns         turns among candidates in proportion to their weights
subscription_pause  holds subscriptions back where there are too many of them
"""
