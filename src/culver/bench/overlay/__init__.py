"""`culver bench overlay` repeats the evaluations of papers: B-DRP's (section 5), with a comparison of ways to route,
and that of cluster-based publish/subscribe (section 4).

overlay_bench        runs the experiments in turn and draws their plots
overlay_plan         how much to measure
bdrp_paper           every number that the paper's text gives
overlay_findings     our numbers beside the paper's
client_workload      the paper's clients and messages
broker_topologies    its networks

simulated_figures    figures 2 and 4 to 6
large_network        figure 7
packet_routes        the way of every message, by the objects of production
broker_queues        hot: brokers and links as queues

gossip_figures       how quickly the membership spreads a change, and at what cost, beside BlueDove's figures

cluster_figures      the figures of the paper about clusters
cluster_paper        every number that its text gives

real_sites/          figures 3 and 5 with real sites, and what a message costs them
routing_comparison/  bytes on links and tables of predicates, with B-DRP and other ways to route
"""
