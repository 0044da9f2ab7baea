"""How a message, a heartbeat, a switch and a check look on a Redis channel.

    0      3      4           12      16        20          28
    +------+------+-----------+-------+---------+-----------+---------
    | mark | kind | publisher | epoch | version | sequence  | payload
    +------+------+-----------+-------+---------+-----------+---------

``publisher`` is a random number of one client, ``epoch`` tells the lives of its counter apart, and ``sequence``
counts its messages on this channel from 1. ``version`` is the version of the channel's plan entry that the publisher
obeyed: a dispatcher learns from it where the message has gone. A chained message carries the id before its own as the
first eight bytes of the payload, for publishers whose ids rise but have holes. A heartbeat has the last sequence and
no payload. A check says that a dispatcher may have missed messages: subscribers read the channel's tails.

Data without the mark comes from a program that does not use this client. It is delivered as it is, and nothing is
promised for it.
"""

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import msgspec

from culver.channels.core.channel_plan import PlanEntry, Ring
from culver.channels.core.reserved_names import RING_KEY

_HEADER = struct.Struct(">3sBQIIQ")
_PREVIOUS = struct.Struct(">Q")
_MARK = b"\x00cv"
_SIGNATURE_BYTES = 16
HEADER_BYTES = _HEADER.size

Signed = TypeVar("Signed")


class EnvelopeKind(IntEnum):
    """What an envelope holds. A dispatcher's copy is marked, so that no dispatcher forwards it again."""

    MESSAGE = 1
    CHAINED = 2
    HEARTBEAT = 3
    SWITCH = 4
    CHECK = 5
    FORWARDED = 0x80


@dataclass(slots=True)
class Envelope:
    """One message or heartbeat. ``previous`` is the id before this one: sequence - 1, unless it is chained."""

    kind: int
    publisher: int
    epoch: int
    version: int
    sequence: int
    previous: int
    payload: bytes
    forwarded: bool


def pack_message(publisher: int, epoch: int, version: int, sequence: int, payload: bytes) -> bytes:
    return _HEADER.pack(_MARK, EnvelopeKind.MESSAGE, publisher, epoch, version, sequence) + payload


def pack_chained(
    publisher: int, epoch: int, version: int, previous: int, sequence: int, payload: bytes
) -> bytes:
    header = _HEADER.pack(_MARK, EnvelopeKind.CHAINED, publisher, epoch, version, sequence)
    return header + _PREVIOUS.pack(previous) + payload


def pack_heartbeat(publisher: int, epoch: int, version: int, sequence: int) -> bytes:
    return _HEADER.pack(_MARK, EnvelopeKind.HEARTBEAT, publisher, epoch, version, sequence)


def pack_check() -> bytes:
    """Asks every subscriber of a channel to read the channel's tails. Not signed: it costs a reading at most."""
    return _HEADER.pack(_MARK, EnvelopeKind.CHECK, 0, 0, 0, 0)


def is_ours(data: bytes) -> bool:
    """Whether a Culver client or dispatcher wrote this; anything else is foreign data."""
    return len(data) >= HEADER_BYTES and data.startswith(_MARK)


def kind_of(data: bytes) -> int:
    """The kind without the mark of a forwarded copy. Only for data that ``is_ours``."""
    return data[3] & 0x7F


def unpack(data: bytes) -> Envelope:
    """Unpacks a message or a heartbeat.

    :raises ValueError: a kind that this version does not know, or a chained message that is cut short.
    """
    _, kind, publisher, epoch, version, sequence = _HEADER.unpack_from(data)
    forwarded = bool(kind & EnvelopeKind.FORWARDED)
    kind &= 0x7F
    if kind == EnvelopeKind.CHAINED:
        if len(data) < HEADER_BYTES + _PREVIOUS.size:
            raise ValueError("a chained message is cut short")
        (previous,) = _PREVIOUS.unpack_from(data, HEADER_BYTES)
        payload = data[HEADER_BYTES + _PREVIOUS.size :]
    elif kind in (EnvelopeKind.MESSAGE, EnvelopeKind.HEARTBEAT):
        previous = sequence - 1
        payload = data[HEADER_BYTES:]
    else:
        raise ValueError(f"an envelope of the unknown kind {kind}")
    return Envelope(kind, publisher, epoch, version, sequence, previous, payload, forwarded)


def as_forwarded(data: bytes) -> bytes:
    """The same envelope, marked as a dispatcher's copy."""
    return data[:3] + bytes((data[3] | EnvelopeKind.FORWARDED,)) + data[4:]


def pack_switch(channel: bytes, entry: PlanEntry, secret: bytes) -> bytes:
    """Asks every subscriber of a channel to follow a new entry. Signed: only the service can move subscribers."""
    return _HEADER.pack(_MARK, EnvelopeKind.SWITCH, 0, 0, entry.version, 0) + pack_entry(
        channel, entry, secret
    )


def unpack_switch(channel: bytes, data: bytes, secret: bytes) -> PlanEntry:
    """
    :raises ValueError: the signature is not the service's, or the entry cannot be read.
    """
    return unpack_entry(channel, data[HEADER_BYTES:], secret)


def pack_entry(channel: bytes, entry: PlanEntry, secret: bytes) -> bytes:
    """An entry as a switch, a notice and the plan's keys carry it."""
    return _sign(channel, msgspec.msgpack.encode(entry), secret)


def unpack_entry(channel: bytes, signed: bytes, secret: bytes) -> PlanEntry:
    """
    :raises ValueError: the signature is not the service's, or the entry cannot be read.
    """
    return _open(channel, signed, secret, PlanEntry)


def pack_ring(ring: Ring, secret: bytes) -> bytes:
    """The ring as every server stores it."""
    return _sign(RING_KEY, msgspec.msgpack.encode(ring), secret)


def unpack_ring(signed: bytes, secret: bytes) -> Ring:
    """
    :raises ValueError: the signature is not the service's, or the ring cannot be read.
    """
    return _open(RING_KEY, signed, secret, Ring)


def _sign(subject: bytes, body: bytes, secret: bytes) -> bytes:
    return _signature(subject, body, secret) + body


def _open(subject: bytes, signed: bytes, secret: bytes, form: type[Signed]) -> Signed:
    signature, body = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(subject, body, secret)):
        raise ValueError(f"the plan of {subject!r} is not signed by the service")
    try:
        return msgspec.msgpack.decode(body, type=form)
    except msgspec.DecodeError as error:
        raise ValueError(f"the plan of {subject!r} cannot be read: {error}") from error


def _signature(subject: bytes, body: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, len(subject).to_bytes(4, "big") + subject + body, "sha256")[:_SIGNATURE_BYTES]
