"""`culver bench bluedove` repeats the evaluation of BlueDove's paper (section IV) as a simulation.

bluedove_bench       runs the figures in turn and draws their plots
bluedove_plan        how much to simulate
bluedove_paper       every number that the paper's text gives
bluedove_findings    our numbers beside the paper's
simulated_world      the paper's workload, divided by the real placements
simulation           dispatchers and matchers over time
simulated_matchers   the queues of a matcher
service_times        what an event costs a matcher
saturation           the highest rate at which queues do not grow
scaling_runs         figures 5 and 6
policy_comparison    figures 7 and 8
workload_changes     figures 9 and 10
variations           figure 11
spark_comparison     figure 6 on the real Spark engine
"""
