"""Every number that the text of B-DRP's paper gives (section 5), and what follows from these.

Its figures are only drawn, so the throughputs of figures 3 to 7 are left out. The paper's brokers had 4 cores of
2 GHz each, and its clients one Java process.
"""

#: Figure 2: clients and brokers that a message is for, with 80 clients on 8 brokers.
CLIENTS = 80
CLIENT_REPLICATION = 4.2
BROKER_REPLICATION = 3.3
FILTERS = 20

#: Figure 3: one broker.
SINGLE_CLIENTS = 50
SINGLE_FILTERS = 4
SINGLE_REPLICATION = 27.0

#: Figures 4 and 5: each client sends 1 message a second at first and 100 at last.
NETWORKS = (1, 2, 4, 8)
LINK_BYTES_PER_SECOND = 1_000_000
LAST_CLIENT_RATE = 100.0
UNDELIVERED_PERCENT = {8: 0.0}

#: Figure 6.
CONSTANT_RATES = (1_600, 2_000, 2_400, 2_800)

#: Figure 7.
LARGE_NETWORK = 42
LARGE_DIAMETER = 11
LARGE_CLIENTS = 420
MOST_CLIENTS_PER_BROKER = 50
SLOW_LINK_BYTES_PER_SECOND = 100_000

#: What figures 4 and 5 compare, as far as it follows from the text: flooding sends a message to all 7 other brokers,
#: and B-DRP to those of them that want it, 3.3 of 8.
FEWER_BROKERS_REACHED = (8 - 1) / (BROKER_REPLICATION * (8 - 1) / 8)

#: Matching encoded predicates, the target that the project has set itself; the paper gives no figure.
MATCHING_US = 50.0
