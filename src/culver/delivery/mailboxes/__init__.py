"""Mailboxes of durable subscriptions: bookkeeping, limits and cursors."""
