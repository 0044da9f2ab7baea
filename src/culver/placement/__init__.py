"""Placement: which slices of matching hold a registration, and which get an event.

placement     the protocol, and what a route is       spans          terms that divide registrations
replicated    every slice holds all                   division       where to cut the event space
hashed        one slice by number, events to all      event_space    by one dimension, an event to one slice
auto          which of them to choose, and why        kmeans         by likeness, events where they may match
"""
