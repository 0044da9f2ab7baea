"""The mailboxes of durable subscriptions. Read in this order:

mailboxes            the bookkeeping of all of them, pure: accept, acknowledge, drop
mailbox_columns      the counters of each mailbox in a slot of a few arrays; registration number to slot
subscription_names   subscription id to slot and back, also for millions of members of a set
gap_ledger           gaps that nobody has acknowledged yet
mailbox_keeper       about once a second: enforces limits, and forgets mailboxes that have ended
cursor_store         cursors and gaps on disk, in SQLite
"""
