"""`culver bench bluedove`: the evaluation of BlueDove's paper (its section IV) again, as a simulation.

paper         every figure that its text gives           plan          how much is simulated
findings      a figure of ours beside the paper's        run           figures one after another, and their plots
matchers      queues served in turn                      service       what an event costs a matcher
simulation    dispatchers and matchers over time         saturation    the rate above which queues grow
world         the paper's workload, divided by the real placements

Figures: 5 and 6 scaling, 7 and 8 policies, 9 and 10 changes, 11 variations
"""
