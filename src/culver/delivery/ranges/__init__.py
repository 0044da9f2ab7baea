"""Notifications by range of the log: in memory, and in files."""
