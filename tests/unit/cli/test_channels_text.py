"""What `culver channels` prints."""

import msgspec

from culver.channels import ChannelStatus, LostMessages, ServerStatus, ServiceStatus
from culver.channels.channel_status import DecisionStatus
from culver.cli.channels_text import (
    gap_record,
    message_record,
    message_text,
    plan_page,
    shown_count,
    top_page,
)


def status(*channels: ChannelStatus, decisions: tuple[DecisionStatus, ...] = ()) -> ServiceStatus:
    servers = [
        ServerStatus(1, "redis://127.0.0.1:16001", "up", 0.25, 25e6, 100e6, 0.125, 12, 0, None),
        ServerStatus(
            2, "redis://127.0.0.1:16002", "up", 0.95, 5e6, 100e6, 0.97, 3, 0, "CPU at 97% of a core"
        ),
    ]
    placed = sum(channel.version > 0 for channel in channels)
    return ServiceStatus(4, servers, list(channels), placed, 1, 3, 0, 0, 0, list(decisions))


def channel(name: str, version: int, publications: float, outgoing_bytes: float) -> ChannelStatus:
    groups = ((1, 2),) if version else ((1,),)
    mapping = "all publishers" if version else "home"
    return ChannelStatus(name, mapping, groups, version, False, publications, 40, outgoing_bytes)


def message(kind: str, data: object, pattern: bytes | None = None) -> dict[str, object]:
    return {"type": kind, "pattern": pattern, "channel": b"news", "data": data}


def test_plan_shows_servers_placed_channels_and_reasons() -> None:
    decision = DecisionStatus(0.0, ("server 2 is relieved",), 1, 0, ())
    page = plan_page(
        status(channel("hot", 7, 10.0, 9e3), channel("cold", 0, 1.0, 10.0), decisions=(decision,))
    )
    lines = page.splitlines()
    assert lines[1].split() == ["1", "up", "0.25", "25.00", "100.0", "12%", "12", "redis://127.0.0.1:16001"]
    assert "CPU at 97% of a core" in lines[2]
    assert "hot      all publishers  [1+2]    10.0        40           9.0" in lines
    assert "cold" not in page
    assert "Moves in progress: 1" in page
    assert lines[-1].endswith("  server 2 is relieved")


def test_prices_are_shown_where_they_differ() -> None:
    page = status()
    assert "price" not in plan_page(page)
    page.servers[1] = msgspec.structs.replace(page.servers[1], price=2.5)
    heads, first, second = plan_page(page).splitlines()[:3]
    place = heads.index("price")
    assert [line[place:].split()[0] for line in (first, second)] == ["1", "2.5"]
    assert heads.split()[-1] == "address"


def test_a_plan_without_entries_says_who_serves_the_channels() -> None:
    page = plan_page(status())
    assert "No channel has an entry" in page
    assert "The balancer has not decided anything yet." in page


def test_top_shows_the_busiest_channels_first_and_leaves_silent_ones_out() -> None:
    page = top_page(
        status(channel("quiet", 3, 0.0, 0.0), channel("b", 0, 5.0, 1e3), channel("a", 0, 9.0, 5e3)),
        "http://127.0.0.1:8500",
        200,
        50,
    )
    assert page.startswith("Channels at http://127.0.0.1:8500   moves: 3 made, 1 in progress")
    assert [line.split()[0] for line in page.splitlines()[-2:]] == ["a", "b"]
    assert "quiet" not in page


def test_top_keeps_to_the_size_of_the_terminal() -> None:
    page = top_page(status(*(channel(f"c{number}", 0, 1.0, 1.0) for number in range(50))), "http://x", 40, 12)
    assert len(page.splitlines()) == 11
    assert max(map(len, page.splitlines())) <= 40


def test_a_message_is_a_line_and_a_record() -> None:
    assert message_text(message("message", b"hello")) == "news: hello"
    assert message_record(message("message", b"hello")) == {
        "type": "message",
        "channel": "news",
        "data": "hello",
    }
    assert message_record(message("pmessage", b"hello", b"n*"))["pattern"] == "n*"


def test_data_that_is_no_text_keeps_its_bytes_in_a_record() -> None:
    record = message_record(message("message", b"\xff\xfe"))
    assert record == {"type": "message", "channel": "news", "data_base64": "//4="}
    assert message_text(message("message", b"\xff")) == "news: \ufffd"


def test_a_gap_names_its_publisher_and_its_bounds() -> None:
    gap = message("gap", LostMessages(b"news", 0xAB, 2, 5, 9))
    assert message_text(gap).startswith("news: messages 5 to 9 of publisher ab were lost")
    record = gap_record(gap)
    assert (record["publisher"], record["epoch"], record["first"], record["last"]) == ("ab", 2, 5, 9)


def test_counts_have_singular_and_plural() -> None:
    assert [shown_count(count, "server") for count in (0, 1, 2_000)] == [
        "0 servers",
        "1 server",
        "2,000 servers",
    ]
