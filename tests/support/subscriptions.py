"""Subscriptions for registries, which look at nothing of a predicate but its text."""

from collections.abc import Iterable, Sequence
from typing import Any

from culver.model.columns.value_rows import column_of_values
from culver.model.language.predicate import Constant, Predicate
from culver.model.language.prepared_filter import prepare
from culver.registry.registration import Block, BlockSpec, Registration, SubscriptionSpec


def predicate(text: str = "price > 20") -> Predicate:
    return Predicate(text, Constant(True), ((),))


def spec(
    id: str | None = None,  # noqa: A002
    text: str = "price > 20",
    *,
    durable: bool = True,
    expires_at_us: int | None = None,
    scheme: str = "columnar",
    channel: str | None = None,
) -> SubscriptionSpec:
    return SubscriptionSpec(
        predicate(text),
        id=id,
        durable=durable,
        expires_at_us=expires_at_us,
        scheme=scheme,
        channel=channel,
    )


def block_spec(
    name: str, rows: Sequence[Sequence[Any]], text: str = "symbol = ? AND close >= ?", **options: Any
) -> BlockSpec:
    columns = tuple(column_of_values(column, 1) for column in zip(*rows, strict=True))
    return BlockSpec(name, prepare(text), columns, **options)


def expanded(registrations: Iterable[Registration | Block]) -> list[Registration]:
    """Every member of a block as a registration of its own, by number."""
    members = [
        list(each.registrations(each.numbers().tolist())) if isinstance(each, Block) else [each]
        for each in registrations
    ]
    return sorted((member for block in members for member in block), key=lambda each: each.number)
