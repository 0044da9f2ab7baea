"""Notifications by range of the log, in memory and in files, of which mailboxes consist."""
