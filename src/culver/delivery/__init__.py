"""Delivery: mailboxes, live sessions, acknowledgement and replay."""

from culver.delivery.deliveries import Delivery, DeliveryGap, parse_delivery_id
from culver.delivery.hub import Finished, Hub
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.delivery.ranges.followed_files import FileRange, FollowedFiles
from culver.delivery.ranges.notification_ranges import Range
from culver.delivery.shares import Share, share_of

__all__ = [
    "NEVER",
    "Delivery",
    "DeliveryGap",
    "FileRange",
    "Finished",
    "FollowedFiles",
    "Hub",
    "Range",
    "Share",
    "parse_delivery_id",
    "share_of",
]
