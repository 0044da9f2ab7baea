"""What dispatchers and clients tell each other besides messages, on the reserved channels of a server; and what a
dispatcher tells the balancer of the moves that it takes part in, in a key of its own server."""

import msgspec


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag="barrier"):
    """A subscriber has joined a channel here. The dispatcher echoes this to the client's inbox at the server
    ``through``, behind everything that it has forwarded there before."""

    client: int
    token: int
    through: int


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """A subscriber that was here under an older entry follows ``version`` now."""

    client: int
    channel: bytes
    version: int


class BarrierEcho(msgspec.Struct, frozen=True, array_like=True, tag="echo"):
    """The answer to a barrier."""

    token: int


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """A publication came to a server that does not serve its channel any more: the channel's entry, signed."""

    channel: bytes
    entry: bytes


DispatcherQuestion = Barrier | Moved
DispatcherAnswer = BarrierEcho | Notice

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[DispatcherQuestion] = msgspec.msgpack.Decoder(DispatcherQuestion)
_answers: msgspec.msgpack.Decoder[DispatcherAnswer] = msgspec.msgpack.Decoder(DispatcherAnswer)


def encode_note(note: DispatcherQuestion | DispatcherAnswer) -> bytes:
    return _encoder.encode(note)


def decode_question(data: bytes) -> DispatcherQuestion:
    """
    :raises msgspec.DecodeError: this is no question of a client.
    """
    return _questions.decode(data)


def decode_answer(data: bytes) -> DispatcherAnswer:
    """
    :raises msgspec.DecodeError: this is no answer of a dispatcher.
    """
    return _answers.decode(data)


class ChannelVersion(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An entry of a channel, named by its version."""

    channel: bytes
    version: int


class DispatcherReport(msgspec.Struct, frozen=True):
    """Written at every change and once a second; ``beat`` rises with each, so a dead dispatcher is noticed.

    ``applied`` lists the current entries of all routes for which the dispatcher listens and forwards. ``empty`` lists
    older entries that have no subscriber left here, ``quiet`` those that no publisher has obeyed here for a while.
    """

    server: int
    incarnation: int
    beat: int
    applied: tuple[ChannelVersion, ...]
    empty: tuple[ChannelVersion, ...]
    quiet: tuple[ChannelVersion, ...]


def encode_report(report: DispatcherReport) -> bytes:
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> DispatcherReport:
    """
    :raises msgspec.DecodeError: this is no report.
    """
    return msgspec.msgpack.decode(data, type=DispatcherReport)


def encode_tail(epoch: int, sequence: int) -> bytes:
    return b"%d:%d" % (epoch, sequence)


def decode_tails(fields: object) -> dict[int, tuple[int, int]]:
    """The tails of a channel from a reply to HGETALL; fields that cannot be read are left out."""
    tails: dict[int, tuple[int, int]] = {}
    if not isinstance(fields, dict):
        return tails
    for publisher, value in fields.items():
        try:
            epoch, _, sequence = value.partition(b":")
            tails[int(publisher, 16)] = (int(epoch), int(sequence))
        except (ValueError, AttributeError):
            continue
    return tails
