"""What brokers say to one another about their load (section 3.3 of the paper).

Attached to traffic and gossip:

    LoadFigures          how much a broker has to do, and how much it can do

Between brokers of one cluster:

    OffloadRequest       asks to take a part of the sender's load
    OffloadAccept        takes as much of it, for a time
    HoldBack             asks to keep new subscriptions for a while
    ResumeSubscriptions  takes them again

Their tags lie beyond those of `overlay_messages`, so that both can be members of one union.
"""

import enum
from typing import Annotated, NamedTuple

import msgspec

MOST_RATE = 1e9
"""Messages a second that no broker reaches. A figure beyond is a lie or a fault."""

MOST_SECONDS = 3600.0

Rate = Annotated[float, msgspec.Meta(ge=0, le=MOST_RATE)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]


class LoadKind(enum.IntEnum):
    """The components of a broker's load (section 3.1): publications in the ring, publications in the cluster,
    subscriptions in the cluster, and its own clients, which nobody else can serve."""

    RING = 1
    CLUSTER = 2
    SUBSCRIPTION = 3
    CLIENT = 4


class LoadFigures(msgspec.Struct, frozen=True, array_like=True):
    """Messages a second. `capacity` is the most that the broker can handle. `ring_use` is the mean use of its ring,
    and `acceptance` the share of ring content that it takes; the rest should go to others of its cluster."""

    ring_send: Rate
    ring_receive: Rate
    cluster_send: Rate
    cluster_receive: Rate
    subscription_send: Rate
    subscription_receive: Rate
    client: Rate
    capacity: Annotated[float, msgspec.Meta(gt=0, le=MOST_RATE)]
    ring_use: Rate = 0.0
    acceptance: Share = 1.0

    @property
    def total(self) -> float:
        return (
            self.ring_send
            + self.ring_receive
            + self.cluster_send
            + self.cluster_receive
            + self.subscription_send
            + self.subscription_receive
            + self.client
        )

    @property
    def use(self) -> float:
        """The share of the capacity that is used; above 1 where more comes than the broker can handle."""
        return self.total / self.capacity


class OffloadRequest(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """The sender wants the receiver to carry `amount` messages a second of a kind of its load, in all. An amount of 0
    ends it."""

    kind: LoadKind
    amount: Rate


class OffloadAccept(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """The sender carries `amount` messages a second of the receiver's load, in all, for so many seconds. An amount
    of 0 refuses, or ends it."""

    kind: LoadKind
    amount: Rate
    seconds: Seconds


class HoldBack(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """The receiver keeps its new subscriptions from the sender for so many seconds, or until ResumeSubscriptions."""

    seconds: Seconds


class ResumeSubscriptions(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """The receiver sends its subscriptions again, with those that it kept."""


LoadMessage = OffloadRequest | OffloadAccept | HoldBack | ResumeSubscriptions


class SendLoadMessage(NamedTuple):
    """An instruction to the owner: send the message to the site."""

    site: str
    message: LoadMessage


def is_sound(message: LoadFigures | LoadMessage) -> bool:
    """Whether all numbers are within their bounds, also of an object that was never decoded. NaN is not."""
    match message:
        case LoadFigures():
            rates = msgspec.structs.astuple(message)
            return (
                all(0 <= rate <= MOST_RATE for rate in rates)
                and message.capacity > 0
                and message.acceptance <= 1
            )
        case OffloadRequest(_, amount):
            return 0 <= amount <= MOST_RATE
        case OffloadAccept(_, amount, seconds):
            return 0 <= amount <= MOST_RATE and 0 <= seconds <= MOST_SECONDS
        case HoldBack(seconds):
            return 0 <= seconds <= MOST_SECONDS
        case ResumeSubscriptions():
            return True
