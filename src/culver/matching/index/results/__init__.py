"""Matches by registration. Read in this order:

grouping         groups matches that are listed by event, and joins groups: few pairs, slices, ranges of delivery
gatherer         groups many matches of one segment while it searches, in memory that is used again
gather_kernels   its loops
"""
