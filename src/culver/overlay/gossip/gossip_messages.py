"""The messages between members, each one frame, and the news that every message carries.

    Probe           asks whether the receiver is alive
    ProbeAnswer     it is, or another one is that the receiver has asked about
    IndirectProbe   asks the receiver to probe a third member
    NewsMessage     carries news and nothing else
    TableDigest     begins an exchange: check sums of the sender's table
    TablePiece      a part of the sender's table, for one that differs there

A message carries no names of sender and receiver: the link, or the frame around it, has them already.
"""

from enum import IntEnum
from typing import Annotated

import msgspec

MOST_NEWS = 128
MOST_NEWS_IN_PIECE = 1024
BUCKETS = 64
"""A table has so many parts that are compared by their check sums. A digest has as many, or a smaller power of 2."""
SUM_BYTES = 4

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Members count on from numbers that others tell them. The bound leaves room for that: msgpack has 64 bits."""
Key = Annotated[str, msgspec.Meta(max_length=96)]
Word = Annotated[str, msgspec.Meta(max_length=256)]


class MemberStatus(IntEnum):
    """Among statements about the same incarnation of a member, the one with the higher status wins."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3

    @property
    def is_living(self) -> bool:
        return self < MemberStatus.DEAD


class MemberFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a member publishes about itself. Only the member raises `version`."""

    version: Count
    addresses: Annotated[tuple[Word, ...], msgspec.Meta(max_length=8)] = ()
    loads: Annotated[dict[Word, float], msgspec.Meta(max_length=32)] = {}
    labels: Annotated[dict[Word, Word], msgspec.Meta(max_length=32)] = {}


class StatusNews(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A member has this status. `accuser` is who suspects it, or has declared it dead."""

    key: Key
    incarnation: Count
    status: MemberStatus
    accuser: Key = ""


class FactsNews(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A member was alive in this incarnation and has published these facts."""

    key: Key
    incarnation: Count
    facts: MemberFacts


News = StatusNews | FactsNews
SomeNews = Annotated[tuple[News, ...], msgspec.Meta(max_length=MOST_NEWS)]


class Probe(msgspec.Struct, frozen=True, array_like=True, tag=1):
    sequence: Count
    news: SomeNews = ()


class ProbeAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answers the probe, or the indirect probe, that had this number."""

    sequence: Count
    news: SomeNews = ()


class IndirectProbe(msgspec.Struct, frozen=True, array_like=True, tag=3):
    sequence: Count
    target: Key
    news: SomeNews = ()


class NewsMessage(msgspec.Struct, frozen=True, array_like=True, tag=4):
    news: SomeNews = ()


class TableDigest(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The check sums of the living members in each bucket of the sender's table. `news` introduces the sender."""

    sums: Annotated[bytes, msgspec.Meta(min_length=SUM_BYTES, max_length=SUM_BYTES * BUCKETS)]
    news: SomeNews = ()


class TablePiece(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All living members of the sender's table in these buckets. The receiver answers with what it knows better.
    Without buckets it is such an answer."""

    buckets: Annotated[bytes, msgspec.Meta(max_length=BUCKETS)]
    news: Annotated[tuple[News, ...], msgspec.Meta(max_length=MOST_NEWS_IN_PIECE)]


GossipMessage = Probe | ProbeAnswer | IndirectProbe | NewsMessage | TableDigest | TablePiece

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GossipMessage)


def encode_gossip(message: GossipMessage) -> bytes:
    return _encoder.encode(message)


def decode_gossip(body: bytes) -> GossipMessage:
    """Raises msgspec.DecodeError for anything that is no message, or that exceeds a bound."""
    message: GossipMessage = _decoder.decode(body)
    return message


def encoded_size(part: News | MemberFacts) -> int:
    return len(_encoder.encode(part))
