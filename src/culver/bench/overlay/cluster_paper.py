"""Every number that the text of the paper about clusters gives (section 4), and what follows from these.

Its figures are only drawn. Two of its statements about figure 3 do not fit together. At a matching ratio of 25 %, 100
publications make 100 (9 + 0.25 * 90) messages among 100 brokers in 10 clusters, a mean of 63 messages in and out for
each broker, and 89 with the publications and deliveries of clients. The text gives loads of [50, 100) without
balancing, which agrees, and of [200, 250) with it: more than if every publication went to every broker (198). We
suppose that the second statement is about the graph for 75 %, where the mean is 229 with clients.
"""

#: All simulations.
BROKERS = 100

#: Figure 2.
CLUSTER_COUNTS = (5, 10, 20)
SPREAD_RATIOS = (0.1, 0.5, 0.7)

#: Figure 3.
CLUSTERS = 10
PUBLICATIONS = 100
THRESHOLD = 150.0
BALANCED_RATIOS = (0.25, 0.5, 0.75)
#  At 25 %, percent of brokers: without balancing, in [50, 100) and above 250; with balancing, in one band of 50
# messages  with none above it.
LOW_BAND_PERCENT = 75.0
ABOVE_250_PERCENT = 10.0
ABOVE_350_BROKERS = 1
ONE_BAND_PERCENT = 90.0
BAND = 50.0
#: Section 3.3: a broker is overloaded at this share of its capacity.
OVERLOADED = 0.9
