"""`culver bench streamhub`: the evaluation of StreamHub's paper (its section 5) again, on W2.

findings      a figure of ours beside the paper's         sliced       W2's subscriptions, divided into slices
paper         every figure that its text gives            site         a whole site with W2's subscriptions
plan          how much is measured                        run          figures one after another, and their plots

Figures: 6 distributions, 7 filtering, 8 operators, 9 storing, 10 clustering, 11 whole; table 2: delays
"""
