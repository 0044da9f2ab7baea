"""Delivery: mailboxes, live sessions, acknowledgement and replay. `docs/delivery.md` lists its modules in order."""

from culver.delivery.deliveries import (
    Delivery as Delivery,
    DeliveryGap as DeliveryGap,
    Waiting as Waiting,
    parse_delivery_id as parse_delivery_id,
)
from culver.delivery.delivery_kernels import load_kernels as load_kernels
from culver.delivery.hub import FinishedRegistrations as FinishedRegistrations, Hub as Hub
from culver.delivery.log_history import (
    HistoryPage as HistoryPage,
    LogBounds as LogBounds,
    LogHistory as LogHistory,
)
from culver.delivery.mailboxes.mailbox_columns import NEVER as NEVER
from culver.delivery.merged.merged_items import (
    MergedEnd as MergedEnd,
    MergedEvent as MergedEvent,
    MergedGap as MergedGap,
    MergedItem as MergedItem,
)
from culver.delivery.merged.merged_session import MergedSession as MergedSession
from culver.delivery.merged.selection import Selection as Selection
from culver.delivery.ranges.followed_files import FileRange as FileRange, FollowedFiles as FollowedFiles
from culver.delivery.ranges.lost_events import damage_from as damage_from, told_once as told_once
from culver.delivery.ranges.retained_ranges import RetainedRange as RetainedRange
from culver.delivery.shares import Share as Share, share_of as share_of
