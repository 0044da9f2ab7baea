"""Search: events against segments.

In come a batch of events and some segments, out come the registrations that each event matches. A batch goes through
a segment in tiles of 128 events.
"""
