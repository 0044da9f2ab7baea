"""The registry: subscriptions, durable and versioned."""

from culver.registry.block import Block, BlockSpec
from culver.registry.registration import Registration
from culver.registry.registry import AssignPosition, Changes, Registry, SetSummary, SubscriptionSpec
from culver.registry.sqlite_registry import SqliteRegistry
from culver.registry.subscription_ids import check_id, check_set_name, new_ids, split_member

__all__ = [
    "AssignPosition",
    "Block",
    "BlockSpec",
    "Changes",
    "Registration",
    "Registry",
    "SetSummary",
    "SqliteRegistry",
    "SubscriptionSpec",
    "check_id",
    "check_set_name",
    "new_ids",
    "split_member",
]
