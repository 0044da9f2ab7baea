"""`culver bench fanout` measures fan-out to connected subscribers, with NATS and Valkey in the same run.

fanout_bench        the rows, their rounds and their medians; fanout_plan how much is measured
rival_servers       nats-server and valkey-server as processes, with their processor time
bare_connections    sockets to NATS and Valkey; culver_connections those to a site
saturation          one event to 1,000 subscribers, as fast as it goes
filter_latency      1,000 filters at a steady rate
client_filters      the filters that subscribers of NATS and Valkey evaluate themselves
publication_rates   single publications that are on disk when they are acknowledged
set_rates           a large set of subscriptions, consumed as one group
"""
