"""Subscriptions for registries, which look at nothing of a predicate but its text."""

from culver.model.predicate import Constant, Predicate
from culver.registry.registry import SubscriptionSpec


def predicate(text: str = "price > 20") -> Predicate:
    return Predicate(text, Constant(True), ((),))


def spec(
    id: str | None = None,  # noqa: A002
    text: str = "price > 20",
    *,
    durable: bool = True,
    expires_at_us: int | None = None,
) -> SubscriptionSpec:
    return SubscriptionSpec(predicate(text), id=id, durable=durable, expires_at_us=expires_at_us)
