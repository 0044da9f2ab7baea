"""Divisions: dimensions that slices share, and who owns which part of each.

In come the clauses of registrations and, where there are some, events. Out come layers, which say which slices hold a
registration and which may get an event.
"""
