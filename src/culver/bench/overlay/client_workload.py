"""The clients and messages of B-DRP's experiments (sections 5.1.4 and 5.2): W3's values, other predicates.

Every client has one predicate, a disjunction of conjunctions. The values are W3's. How
many attribute names there are decides how many clients a message is for; the paper does not tell its number, so ours
is chosen such that a message is for as many clients as in the paper. Clients are spread over brokers in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.overlay import bdrp_paper as paper
from culver.bench.workloads import news
from culver.config import UNLIMITED_FILTERS
from culver.matching import ColumnarFilter, EncodedFilter, EncodedPredicate, predicate_of
from culver.model.columns import concat, encode
from culver.model.formats import parse_event
from culver.model.language import parse
from culver.simulation import encoded_of

_LARGEST_INTEGER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWorkload:
    """`names` is the size of the pool of attribute names, of which a message has ten, and `terms` that of the
    dictionary. `filters` counts the conjunctions of a client's predicate; each has 1 to `constraints` constraints."""

    clients: int
    filters: int
    constraints: int = 1
    names: int
    terms: int = news.TERMS

    def predicate_texts(self, seed: int) -> list[str]:
        random = Random(f"predicates {seed}")
        return [
            " OR ".join(f"({self._conjunction(random)})" for _ in range(self.filters))
            for _ in range(self.clients)
        ]

    def messages(self, count: int, seed: int) -> list[dict[str, Any]]:
        random = Random(f"messages {seed}")
        size = min(news.ATTRIBUTES_PER_EVENT, self.names)
        return [
            {
                self._name(number): self._value(number, random)
                for number in random.sample(range(self.names), size)
            }
            for _ in range(count)
        ]

    def _conjunction(self, random: Random) -> str:
        numbers = random.sample(range(self.names), random.randint(1, self.constraints))
        return " AND ".join(self._constraint(number, random) for number in numbers)

    def _constraint(self, number: int, random: Random) -> str:
        name, value = self._name(number), self._value(number, random)
        if isinstance(value, int):
            (operator,) = random.choices(news.INTEGER_OPERATORS, news.INTEGER_SHARES)
            return f"{name} {operator} {value}"
        (operator,) = random.choices(news.STRING_OPERATORS, news.STRING_SHARES)
        if operator == "=":
            return f"{name} = '{value}'"
        part = news.affix(value, operator, random.random(), random.randint(2, 4))
        before, after = "" if operator == "prefix" else "%", "" if operator == "suffix" else "%"
        return f"{name} LIKE '{before}{part}{after}'"

    def _name(self, number: int) -> str:
        return f"{news.NAMES[self._kind(number)]}{number}"

    def _kind(self, number: int) -> int:
        # 7 and 30 have no common factor: any run of names has three strings to two integers, nearly.
        return number * 7 % len(news.NAMES)

    def _value(self, number: int, random: Random) -> str | int:
        if self._kind(number) >= len(news.STRING_NAMES):
            return random.randint(0, _LARGEST_INTEGER)
        return random.choices(news.terms()[: self.terms], [1 / rank for rank in range(1, self.terms + 1)])[0]


#: Figure 2: with these pools a message is for 4.2 of 80 clients, and for 27 of 50.
SPREAD = ClientWorkload(clients=paper.CLIENTS, filters=paper.FILTERS, names=280)
SINGLE = ClientWorkload(clients=paper.SINGLE_CLIENTS, filters=paper.SINGLE_FILTERS, names=10, terms=5)


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    """Messages, and the clients and brokers that they are for. `counts` has the clients of a message at each broker;
    `reached` says which brokers' encoded predicates match it. Both are of shape (messages, brokers)."""

    workload: ClientWorkload
    brokers: int
    payloads: list[bytes]
    matched: NDArray[np.int64]  # clients per message
    counts: NDArray[np.int64]
    reached: NDArray[np.bool_]

    @property
    def client_replication(self) -> float:
        return float(self.matched.mean())

    @property
    def broker_replication(self) -> float:
        return float((self.counts > 0).sum(axis=1).mean())


class WorkloadDraw:
    """The predicates and messages of a workload, to be spread over any number of brokers."""

    def __init__(self, workload: ClientWorkload, messages: int, seed: int) -> None:
        self.workload = workload
        self.texts = workload.predicate_texts(seed)
        self.events = workload.messages(messages, seed)
        self.payloads = [msgspec.json.encode(event) for event in self.events]
        self.predicates = [parse(text, UNLIMITED_FILTERS) for text in self.texts]
        self.batch = batch_of_payloads(self.payloads)
        exact = ColumnarFilter()
        exact.add(enumerate(self.predicates))
        self._found = exact.match(self.batch)

    def clients_of(self, broker: int, brokers: int) -> range:
        return range(broker, self.workload.clients, brokers)

    def encoded(self, brokers: int) -> list[EncodedPredicate]:
        """What each broker advertises."""
        return [
            encoded_of(self.predicates[client] for client in self.clients_of(broker, brokers))
            for broker in range(brokers)
        ]

    def spread(self, brokers: int) -> DrawnWorkload:
        messages = len(self.payloads)
        found = self._found
        rows = np.repeat(np.arange(messages), np.diff(found.offsets))
        counts = np.zeros((messages, brokers), np.int64)
        np.add.at(counts, (rows, found.numbers % brokers), 1)
        return DrawnWorkload(
            self.workload,
            brokers,
            self.payloads,
            np.diff(found.offsets),
            counts,
            self._reached(self.encoded(brokers)),
        )

    def _reached(self, encoded: Sequence[EncodedPredicate]) -> NDArray[np.bool_]:
        made = EncodedFilter()
        made.add((number, predicate_of(each.text, "encoded")) for number, each in enumerate(encoded))
        found = made.match(self.batch)
        reached = np.zeros((len(self.payloads), len(encoded)), np.bool_)
        reached[np.repeat(np.arange(len(self.payloads)), np.diff(found.offsets)), found.numbers] = True
        return reached


def batch_of_payloads(payloads: Sequence[bytes]) -> pa.RecordBatch:
    return concat(encode([parse_event(payload) for payload in payloads], 0))


def varied(workload: ClientWorkload, **changes: int) -> ClientWorkload:
    return replace(workload, **changes)
