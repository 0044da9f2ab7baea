"""Delivery: mailboxes, live sessions, acknowledgement and replay."""
