"""`culver bench streamhub` repeats the evaluation of StreamHub's paper (section 5) on W2.

streamhub_bench       runs the figures in turn and draws their plots
streamhub_plan        how much to measure
streamhub_paper       every number that the paper's text gives
streamhub_findings    our numbers beside the paper's
sliced_index          W2's subscriptions, compiled and divided into slices
match_distributions   figure 6
filter_costs          figure 7
operator_rates        figure 8
storage_rates         figure 9
placement_costs       figure 10
whole_pipeline        figure 11
delays                table 2
"""
