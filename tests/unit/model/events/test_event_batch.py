"""Events as columns: layout, cuts, joins, and the fast ways through."""

import pyarrow as pa
import pytest

from culver.config import EventSettings
from culver.model.columns.event_batch import (
    attribute,
    attributes,
    concat,
    deserialise,
    encode,
    event_at,
    from_elsewhere,
    origins,
    serialise,
)
from culver.model.event import Event, Origin
from culver.model.formats import event_from_object
from culver.model.values import Kind, Value

SETTINGS = EventSettings()
CLOUDEVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def plain(**data: Value) -> Event:
    return Event({}, data, b"{}")


def only(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = batches
    return batch


def test_the_columns_are_named_and_typed_as_documented() -> None:
    document = CLOUDEVENT | {
        "n": 7,
        "ok": True,
        "time": "1970-01-01T00:00:01Z",
        "data": {
            "i": 1,
            "r": 1.5,
            "s": "x",
            "b": False,
            "l": ["x"],
            "t": {"$timestamp": "1970-01-01T00:00:02Z"},
        },
    }
    batch = only(encode([event_from_object(document, SETTINGS)], received_us=99))
    types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
    assert types == {
        "payload": pa.binary(),
        "received_us": pa.int64(),
        "c:s:specversion": pa.string(),
        "c:s:id": pa.string(),
        "c:s:source": pa.string(),
        "c:s:type": pa.string(),
        "c:i:n": pa.int64(),
        "c:b:ok": pa.bool_(),
        "c:t:time": pa.int64(),
        "d:i:i": pa.int64(),
        "d:r:r": pa.float64(),
        "d:s:s": pa.string(),
        "d:b:b": pa.bool_(),
        "d:l:l": pa.list_(pa.string()),
        "d:t:t": pa.int64(),
    }
    row = batch.to_pylist()[0]
    assert (row["received_us"], row["c:t:time"], row["d:t:t"], row["d:l:l"]) == (
        99,
        1_000_000,
        2_000_000,
        ["x"],
    )


def test_absence_is_null_and_order_is_kept() -> None:
    batch = only(encode([plain(a=1), plain(b="x"), plain(a=2.5), plain(b="y", a=3)], 0))
    columns = batch.to_pydict()
    assert columns["d:i:a"] == [1, None, None, 3]
    assert columns["d:r:a"] == [None, None, 2.5, None]
    assert columns["d:s:b"] == [None, "x", None, "y"]


def test_no_events_make_no_batch() -> None:
    assert encode([], 0) == []


def test_events_without_attributes_are_kept() -> None:
    batch = only(encode([plain(), plain(a=1), plain()], 0))
    assert [event_at(batch, row).data for row in range(3)] == [{}, {"a": 1}, {}]
    assert only(encode([plain()], 0)).num_rows == 1


def test_names_with_colons_blanks_and_nul_survive() -> None:
    names = ("a:b", ":", "d:i:a", " ", "x\x00y", "é€", "payload", "received_us")
    event = Event({}, dict.fromkeys(names, 1), b"{}")
    batch = deserialise(serialise(only(encode([event], 0))))
    assert event_at(batch, 0) == event
    for name in names:
        assert attribute(batch, name)[Kind.INTEGER].to_pylist() == [1]


def test_a_batch_is_cut_where_it_would_have_too_many_columns() -> None:
    events = [plain(**{f"x{number}": number}) for number in range(10)]
    batches = encode(events, 0, max_columns=4)
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert [event_at(batch, row) for batch in batches for row in range(batch.num_rows)] == events


def test_one_attribute_of_two_kinds_takes_two_columns() -> None:
    assert len(encode([plain(a=1), plain(a=1.5), plain(a="x")], 0, max_columns=2)) == 2


def test_an_event_with_more_columns_than_allowed_stands_alone() -> None:
    wide = plain(a=1, b=2, c=3)
    batches = encode([plain(a=1), wide, wide, plain(a=1)], 0, max_columns=2)
    assert [batch.num_rows for batch in batches] == [1, 1, 1, 1]


def test_sparse_columns_do_not_blow_up() -> None:
    wide = [plain(**{f"x{place}_{number}": 1 for number in range(250)}) for place in range(4)]
    narrow = [plain(**{f"x{row % 4}_{row % 250}": row}) for row in range(20_000)]
    events = wide + narrow
    batches = encode(events, 0)
    assert sum(batch.num_rows for batch in batches) == len(events)
    assert sum(batch.nbytes for batch in batches) < 2_500 * len(events)  # in one batch, 8,000


def test_equal_events_are_never_cut() -> None:
    assert only(encode([plain(a=1, b=2.0, c="x")] * 30_000, 0)).num_rows == 30_000


def test_payloads_are_those_of_the_events() -> None:
    payloads = [b"{}", b"", b"x" * 1000, b"\x00\xff"]
    batch = only(encode([Event({}, {}, payload) for payload in payloads], 0))
    assert [event_at(batch, row).payload for row in range(4)] == payloads


def test_reading_back_copies_nothing() -> None:
    buffer = pa.py_buffer(serialise(only(encode([plain(a=float(number)) for number in range(100)], 0))))
    values = deserialise(buffer).column("d:r:a").buffers()[1]
    assert buffer.address <= values.address < buffer.address + buffer.size


def test_a_batch_is_read_from_bytes_and_memory_views_too() -> None:
    batch = only(encode([plain(a=1)], 0))
    data = serialise(batch)
    assert deserialise(data).equals(batch)
    assert deserialise(memoryview(data)).equals(batch)


def test_a_small_event_stays_small_on_disk() -> None:
    event = plain(symbol="ACME", price=12.5, volume=100, open=12.0, close=12.25)
    assert len(serialise(only(encode([event], 0)))) < 1_200


def test_batches_of_one_schema_are_joined() -> None:
    parts = [only(encode([plain(a=number)], number)) for number in range(3)]
    assert concat(parts).to_pydict() == {
        "payload": [b"{}"] * 3,
        "received_us": [0, 1, 2],
        "d:i:a": [0, 1, 2],
    }
    assert concat(parts[:1]) is parts[0]


def test_batches_of_different_schemas_are_joined_in_order_with_nulls() -> None:
    parts = [
        only(encode(events, 0))
        for events in (
            [plain(a=1), plain(a=2)],
            [plain(b=("x",))],
            [plain(a=3)],
            [plain(a="s", b=())],
            [plain()],
            [plain(b=("y", "z")), plain(b=("x",))],
        )
    ]
    columns = concat(parts).to_pydict()
    assert columns["d:i:a"] == [1, 2, None, 3, None, None, None, None]
    assert columns["d:s:a"] == [None, None, None, None, "s", None, None, None]
    assert columns["d:l:b"] == [None, None, ["x"], None, [], None, ["y", "z"], ["x"]]


def test_joining_nothing_and_empty_batches_gives_no_rows() -> None:
    assert concat([]).num_rows == 0
    empty = only(encode([plain(a=1)], 0)).slice(0, 0)
    other = only(encode([plain(b=1)], 0))
    assert concat([empty, empty]).num_rows == 0
    assert concat([empty, other, empty]).to_pydict()["d:i:b"] == [1]


def both(context: Value | None, data: Value | None) -> Event:
    return Event({} if context is None else {"x": context}, {} if data is None else {"x": data}, b"{}")


def test_the_context_hides_the_data_whatever_the_kinds() -> None:
    events = [both(1, 2), both("c", 2), both(None, 2), both(1, None), both(None, None), both(True, ("l",))]
    found = {kind: column.to_pylist() for kind, column in attribute(only(encode(events, 0)), "x").items()}
    assert found == {
        Kind.INTEGER: [1, None, 2, 1, None, None],
        Kind.STRING: [None, "c", None, None, None, None],
        Kind.BOOLEAN: [None, None, None, None, None, True],
    }


def test_a_kind_that_is_hidden_everywhere_is_left_out() -> None:
    assert set(attribute(only(encode([both("c", 2)], 0)), "x")) == {Kind.STRING}


def test_data_dot_means_the_field_first_and_then_a_path_of_that_name() -> None:
    events = [
        Event({"x": 0}, {"x": 1, "data.x": 2}, b"{}"),
        Event({"x": 0}, {"data.x": 3}, b"{}"),
        Event({"x": 0}, {}, b"{}"),
    ]
    batch = only(encode(events, 0))
    assert attribute(batch, "data.x")[Kind.INTEGER].to_pylist() == [1, 3, None]
    assert attribute(batch, "data.data.x")[Kind.INTEGER].to_pylist() == [2, 3, None]
    assert attribute(batch, "x")[Kind.INTEGER].to_pylist() == [0, 0, 0]


def test_one_source_is_handed_on_as_it_is() -> None:
    batch = only(encode([plain(a=1.5), plain(a=2.5)], 0))
    column = attribute(batch, "a")[Kind.REAL]
    assert column.buffers()[1].address == batch.column("d:r:a").buffers()[1].address


@pytest.mark.parametrize("name", ["nothing", "payload", "received_us", "", "data.", "data.nothing"])
def test_an_unknown_attribute_has_no_columns(name: str) -> None:
    assert attribute(only(encode([plain(a=1)], 0)), name) == {}


def test_a_slice_without_a_value_of_some_kind_leaves_that_kind_out() -> None:
    batch = only(encode([plain(a=1), plain(a="x")], 0))
    assert set(attribute(batch.slice(1), "a")) == {Kind.STRING}


def test_every_name_that_can_be_asked_for_is_listed() -> None:
    event = event_from_object(CLOUDEVENT | {"data": {"a": 1, "b": {"c": 2}}}, SETTINGS)
    names = tuple(only(encode([event], 0)).schema.names)
    assert attributes(names).keys() == set(CLOUDEVENT) | {"a", "data.a", "b.c", "data.b.c"}


def test_an_origin_comes_back_and_no_filter_can_name_it() -> None:
    here = plain(x=1, site="s")
    there = Event({"offset": 2}, {"x": 2}, b"{}", Origin("lugano", 4711))
    batch = only(encode([here, there], 0))
    assert batch.schema.names[-2:] == ["o:s:site", "o:i:offset"]
    assert [event_at(batch, row) for row in range(2)] == [here, there]
    assert origins(batch) == ([None, "lugano"], [None, 4711])
    assert set(attributes(tuple(batch.schema.names))) == {"x", "data.x", "site", "data.site", "offset"}
    assert attribute(batch, "site")[Kind.STRING].to_pylist() == ["s", None]
    again = deserialise(serialise(batch))
    assert event_at(again, 1) == there


def test_batches_with_and_without_origins_are_joined() -> None:
    events = [plain(x=1), Event({}, {"x": 2}, b"{}", Origin("a", 0)), plain(y=3)]
    batch = concat([only(encode([event], 0)) for event in events])
    assert [event_at(batch, row) for row in range(3)] == events
    assert origins(batch.slice(1)) == (["a", None], [0, None])
    elsewhere = from_elsewhere(batch)
    assert elsewhere is not None
    assert elsewhere.tolist() == [False, True, False]


def test_a_batch_of_local_events_has_no_columns_for_origins() -> None:
    batch = only(encode([plain(x=1)], 0))
    assert batch.schema.names == ["payload", "received_us", "d:i:x"]
    assert origins(batch) == ([None], [None])
    assert from_elsewhere(batch) is None
