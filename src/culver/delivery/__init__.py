"""Delivery: mailboxes, live sessions, acknowledgement and replay. Read in this order:

deliveries            what a subscriber receives: deliveries, and announcements of gaps
hub                   takes notifications from the pipeline, serves sessions, keeps mailboxes and files
session_table         who is connected to what
subscriber_sessions   one connected subscriber, durable or live
live_buffer           what waits for one live subscriber, pure
payload_reader        payloads from memory or from the log
shares                which of several gateways has a subscription
delivery_kernels      the loops over rows and registrations

mailboxes/            the mailboxes of durable subscriptions: counters, limits, gaps, cursors on disk
ranges/               the notifications they consist of, by range of the log, in memory and in files
"""

from culver.delivery.deliveries import Delivery, DeliveryGap, parse_delivery_id
from culver.delivery.hub import FinishedRegistrations, Hub
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.delivery.ranges.followed_files import FileRange, FollowedFiles
from culver.delivery.ranges.retained_ranges import RetainedRange
from culver.delivery.shares import Share, share_of

__all__ = [
    "NEVER",
    "Delivery",
    "DeliveryGap",
    "FileRange",
    "FinishedRegistrations",
    "FollowedFiles",
    "Hub",
    "RetainedRange",
    "Share",
    "parse_delivery_id",
    "share_of",
]
