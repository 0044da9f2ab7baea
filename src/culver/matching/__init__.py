"""Matching: which subscriptions an event satisfies."""
