"""Placement: which sets of registrations slices work on, and which of them get an event.

placement     the protocol, and what a route is       mpartition    by several dimensions, in layers (and by one)
replicated    one set, which any slice may work on    layer         registrations narrow in the same dimensions
hashed        one slice by number, events to all      division      one dimension, by `ranges` or `buckets`
kmeans        by likeness, events where they match    learning      which dimensions, and where to cut them
auto          which of them to choose, and why        redivision    what becomes of sets when a slice comes or goes
expected      what a placement would cost             pace          what an event costs where all slices are at work
"""
