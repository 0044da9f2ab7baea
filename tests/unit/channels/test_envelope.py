import pytest
from hypothesis import given, strategies as st

from culver.channels.core.channel_plan import PlanEntry
from culver.channels.core.envelope import (
    EnvelopeKind,
    as_forwarded,
    is_ours,
    kind_of,
    pack_chained,
    pack_heartbeat,
    pack_message,
    pack_switch,
    unpack,
    unpack_switch,
)

numbers = st.integers(0, 2**64 - 1)
small_numbers = st.integers(0, 2**32 - 1)
SECRET = b"secret of the service"


@given(numbers, small_numbers, small_numbers, st.integers(1, 2**64 - 1), st.binary(max_size=100))
def test_a_message_comes_out_as_it_went_in(
    publisher: int, epoch: int, version: int, sequence: int, payload: bytes
) -> None:
    data = pack_message(publisher, epoch, version, sequence, payload)
    envelope = unpack(data)
    assert is_ours(data)
    assert (envelope.publisher, envelope.epoch, envelope.version) == (publisher, epoch, version)
    assert (envelope.sequence, envelope.previous, envelope.payload) == (sequence, sequence - 1, payload)
    assert not envelope.forwarded


@given(numbers, numbers, st.binary(max_size=100))
def test_a_forwarded_copy_differs_by_its_mark_only(previous: int, sequence: int, payload: bytes) -> None:
    data = pack_chained(7, 1, 3, previous, sequence, payload)
    copy = unpack(as_forwarded(data))
    original = unpack(data)
    assert copy.forwarded
    copy.forwarded = False
    assert copy == original
    assert original.previous == previous
    assert as_forwarded(as_forwarded(data)) == as_forwarded(data)
    assert kind_of(as_forwarded(data)) == EnvelopeKind.CHAINED


@given(st.binary(max_size=60))
def test_foreign_data_is_never_taken_for_ours_unless_it_has_the_mark(data: bytes) -> None:
    assert is_ours(data) == (len(data) >= 28 and data[:3] == b"\x00cv")


def test_a_switch_is_obeyed_only_with_the_signature_of_the_service() -> None:
    entry = PlanEntry(7, ((1, 2), (3,)))
    data = pack_switch(b"news", entry, SECRET)
    assert unpack_switch(b"news", data, SECRET) == entry
    with pytest.raises(ValueError, match="not signed"):
        unpack_switch(b"news", data, b"another secret")
    with pytest.raises(ValueError, match="not signed"):
        unpack_switch(b"olds", data, SECRET)
    with pytest.raises(ValueError, match="not signed"):
        unpack_switch(b"news", data[:-1] + b"\x00", SECRET)
    with pytest.raises(ValueError, match="not signed"):
        unpack_switch(b"news", pack_heartbeat(1, 1, 1, 1), SECRET)


def test_envelopes_of_unknown_kinds_and_cut_ones_are_refused() -> None:
    heartbeat = pack_heartbeat(1, 2, 3, 4)
    with pytest.raises(ValueError, match="unknown kind 9"):
        unpack(heartbeat[:3] + b"\x09" + heartbeat[4:])
    with pytest.raises(ValueError, match="cut short"):
        unpack(pack_chained(1, 2, 3, 4, 5, b"")[:-1])
