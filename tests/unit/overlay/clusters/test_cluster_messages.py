import msgspec
import pytest

from culver.overlay.clusters.cluster_messages import (
    AdvertisementStored,
    AdvertisementWanted,
    CarriageGap,
    CarriageReport,
    CarrierRefusal,
    CarrierTerms,
    Claim,
    ClaimAnswer,
    ClusterBody,
    ClusterNote,
    GossipNote,
    MemberAdvertisement,
    MemberGap,
    MemberPosition,
    StreamNews,
    TermsMember,
    decode_frame,
    encode_frame,
)
from culver.overlay.core.overlay_messages import LinkState, Packet, StreamPart
from support.linked_nodes import LYON, PARIS

BODIES: list[ClusterBody] = [
    MemberAdvertisement(LYON, 8, "text"),
    AdvertisementStored(8),
    AdvertisementWanted(LYON),
    Claim(8, 2, active=True),
    ClaimAnswer(8, 7, 512, 0, 2, None, ""),
    ClaimAnswer(8, 7, 512, 0, 2, 5, "lost"),
    CarrierTerms(31, 2, 40, 30, (TermsMember(LYON, 8, 10, 0, 0),)),
    CarrierRefusal(31, 2),
    CarriageReport(31, 2, 30, 40, None, (LYON,)),
    CarriageGap(2, 1, 5, "full"),
    StreamNews(PARIS, 8, 5, 9),
    MemberPosition(PARIS, 9, wants_more=True),
    MemberGap(PARIS, 1, 5, "full"),
    GossipNote(b"news"),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_notes_survive_the_wire(body: ClusterBody) -> None:
    note = ClusterNote(PARIS, LYON, 3, body)
    assert decode_frame(encode_frame(note)) == note


def test_messages_of_the_overlay_travel_beside_them() -> None:
    state = LinkState(PARIS, 1, ((LYON, 1),), 0)
    packet = Packet(PARIS, 1, 0, b"\1", (StreamPart(0, 1, 1, 8, 3),), (0,), (b"e",), carrier=LYON)
    assert [decode_frame(encode_frame(each)) for each in (state, packet)] == [state, packet]
    assert packet.root == LYON
    assert msgspec.structs.replace(packet, carrier="").root == PARIS


@pytest.mark.parametrize(
    "body", [Claim(-1, 0, active=True), Claim(1 << 63, 0, active=True), MemberPosition(PARIS, -5, False)]
)
def test_numbers_out_of_bounds_are_no_message(body: ClusterBody) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_frame(encode_frame(ClusterNote(PARIS, LYON, 0, body)))
