"""Every number that the text of StreamHub's paper gives, with the cores that it was measured on.

The paper's cluster had 48 machines of 8 cores (two Intel Xeon E5405, 2 GHz) on a network of 1 Gbit/s, and each
slice had a machine of its own. Numbers that the paper only draws in its plots are left out: they cannot be read off
exactly.
"""

from culver.bench.streamhub.streamhub_findings import Quoted

MEDIAN_MATCHED_PERCENT = Quoted(0.18, None, "paper: of Yahoo's quotes")
MEDIAN_MATCHED = Quoted(180, None, "paper: of Yahoo's quotes")

COUNTING_TIMES_FASTER = Quoted(
    10, 1, "paper: at least, in C++, against a linear search, above 500 subscriptions"
)

ACCESS_POINT_MEGABYTES = Quoted(104, None, "paper: to each slice of M, as much as its network takes")
EXIT_POINT_EVENTS = {
    100_000: Quoted(3_800, 192, "paper: 8 slices of each operator, over the network"),
    10_000: Quoted(17_000, 192, "paper: 8 slices of each operator, over the network"),
}
EXIT_POINT_NOTIFICATIONS = {
    100_000: Quoted(684_000, 192, "paper: 8 slices of each operator, over the network"),
    10_000: Quoted(306_000, 192, "paper: 8 slices of each operator, over the network"),
}

STORED_SUBSCRIPTIONS = Quoted(150_000, 128, "paper: in memory, 8 slices each of AP and M")
STORED_MEGABYTES = Quoted(35.4, 128, "paper: in memory, 8 slices each of AP and M")

CLUSTERED_MATCHING = Quoted(
    0.74, None, "paper: 25 to 27 % faster at 150,000 subscriptions, on M slices of 8 cores"
)
CLUSTERING_SUBSCRIPTIONS = 150_000

WHOLE_EVENTS = Quoted(2_000, 384, "paper: almost; 256 cores in the service, 128 generate and receive")
WHOLE_NOTIFICATIONS = Quoted(
    400_000, 384, "paper: nearly; 256 cores in the service, 128 generate and receive"
)
CLUSTERED_THROUGHPUT = Quoted(1.28, 256, "paper: 10 to 28 % more with clustering")
SCALING = Quoted(4.26 / 4, 256, "paper: 4.26 times as much on 32 machines as on 8, so for each of 4 times 8")

# Table 2: the rate, the average delay and its deviation in seconds.
BATCHED = (
    Quoted(1_000, 256, "paper: about half of its maximum"),
    Quoted(0.98, 256, "paper: at 1,000 events/s"),
    Quoted(0.30, 256, "paper: at 1,000 events/s"),
)
UNBATCHED = (
    Quoted(500, 256, "paper: about half of its maximum"),
    Quoted(0.22, 256, "paper: at 500 events/s"),
    Quoted(0.15, 256, "paper: at 500 events/s"),
)
