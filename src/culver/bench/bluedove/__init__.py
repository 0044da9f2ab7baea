"""`culver bench bluedove` repeats the evaluation of BlueDove's paper (section IV) as a simulation.

bluedove_bench       runs the figures in turn and draws their plots
bluedove_plan        how much to simulate
bluedove_paper       every number that the paper's text gives
bluedove_findings    our numbers beside the paper's
simulated_world      the paper's workload, divided by the real placements
simulation           dispatchers and matchers over time, and the highest rate at which queues do not grow
simulated_matchers   the queues of a matcher
service_times        what an event costs a matcher
saturation_figures   figures 5 to 8 and 11
workload_changes     figures 9 and 10
spark_comparison     figure 6 on the real Spark engine
"""
