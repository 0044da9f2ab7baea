import msgspec
import pytest

from culver.overlay.gossip.gossip_messages import (
    FactsNews,
    GossipMessage,
    IndirectProbe,
    MemberFacts,
    MemberStatus,
    NewsMessage,
    Probe,
    ProbeAnswer,
    StatusNews,
    TableDigest,
    TablePiece,
    decode_gossip,
    encode_gossip,
)

KEY = "paris~0123456789abcdef"
SUSPICION = StatusNews(KEY, 1_700_000_000, MemberStatus.SUSPECT, KEY)
FACTS = FactsNews(KEY, 5, MemberFacts(7, ("10.0.0.1:7401",), {"cpu": 0.5}, {"zone": "a"}))


@pytest.mark.parametrize(
    "message",
    [
        Probe(1, (SUSPICION, FACTS)),
        ProbeAnswer(2),
        IndirectProbe(3, KEY),
        NewsMessage((FACTS,)),
        TableDigest(bytes(8), (FACTS,)),
        TablePiece(b"\x01\x02", (SUSPICION,)),
    ],
)
def test_messages_survive_the_wire(message: GossipMessage) -> None:
    assert decode_gossip(encode_gossip(message)) == message


def test_a_probe_without_news_has_a_few_bytes() -> None:
    assert len(encode_gossip(Probe(60_000))) <= 8


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([9, 1]),
        msgspec.msgpack.encode([1, -1, []]),
        msgspec.msgpack.encode([1, 1 << 63, []]),
        msgspec.msgpack.encode([1, 1, [[1, KEY, 1, 7, ""]]]),
        msgspec.msgpack.encode([1, 1, [[1, "x" * 97, 1, 0, ""]]]),
        encode_gossip(NewsMessage((SUSPICION,) * 129)),
        encode_gossip(TablePiece(b"", (SUSPICION,) * 1025)),
        encode_gossip(TableDigest(bytes(260))),
        encode_gossip(NewsMessage((FactsNews(KEY, 1, MemberFacts(1, ("x",) * 9)),))),
    ],
)
def test_what_is_no_message_or_exceeds_a_bound_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_gossip(body)
