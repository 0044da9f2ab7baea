"""The registry: subscriptions, durable and versioned."""

from culver.registry.block import Block as Block, BlockSpec as BlockSpec
from culver.registry.registration import Registration as Registration
from culver.registry.registry import (
    AssignPosition as AssignPosition,
    Changes as Changes,
    Registry as Registry,
    SetSummary as SetSummary,
    SubscriptionSpec as SubscriptionSpec,
)
from culver.registry.sqlite_registry import SqliteRegistry as SqliteRegistry
from culver.registry.subscription_ids import (
    check_id as check_id,
    check_set_name as check_set_name,
    new_ids as new_ids,
    split_member as split_member,
)
