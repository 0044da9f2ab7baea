"""Many subscriptions over one connection: an event comes once, with all of them that it is for.

selection        which subscriptions a group follows
lane             what catches up and is acknowledged together: one subscription, or one group
event_queue      the newest events of a connection, and what happens where they are too many
merged_session   one connection: joins the lanes
session_fanout   all connections: who gets what of a new range
"""
