"""The mailboxes of durable subscriptions: counters, limits, gaps, cursors on disk."""
