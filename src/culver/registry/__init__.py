"""The registry: subscriptions, durable and versioned."""

from culver.registry.registration import (
    Block as Block,
    BlockSpec as BlockSpec,
    Registration as Registration,
    SubscriptionSpec as SubscriptionSpec,
)
from culver.registry.registry import (
    AssignPosition as AssignPosition,
    Registry as Registry,
    SetSummary as SetSummary,
)
from culver.registry.registry_rescue import Rescued as Rescued, rescue_registry as rescue_registry
from culver.registry.sqlite_registry import SqliteRegistry as SqliteRegistry
from culver.registry.subscription_ids import (
    check_id as check_id,
    check_set_name as check_set_name,
    new_ids as new_ids,
    split_member as split_member,
)
