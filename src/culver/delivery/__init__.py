"""Delivery: mailboxes, live sessions, acknowledgement and replay."""

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
