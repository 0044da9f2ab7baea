"""`culver bench overlay` repeats the evaluation of B-DRP's paper (section 5), and compares ways to route.

overlay_bench       runs the experiments in turn and draws their plots
overlay_plan        how much to measure
bdrp_paper          every number that the paper's text gives
overlay_findings    our numbers beside the paper's
client_workload     the paper's clients and messages
broker_topologies   its networks

real_figures        figure 3, and figure 5 as far as one machine bears it
real_brokers        linked sites in processes of their own; link_proxy limits their links
client_ramp         clients that publish at a growing rate and count what they get

simulated_figures   figures 2 and 4 to 6
large_network       figure 7
broker_costs        what a message costs a real broker
packet_routes       the way of every message, by the objects of production
broker_queues       hot: brokers and links as queues

site_traffic        bytes on links of 42 sites, with B-DRP and other ways to route
site_reach          how many sites an event reaches, by the number of predicates of a site
encoded_tables      size of encoded predicates, and time to match against them
"""
