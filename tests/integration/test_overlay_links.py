"""Links between sites over real sockets: greeting, choice, silence, slow readers, the end."""

import asyncio
from typing import Any

import pytest

from culver.errors import InvalidConfiguration, TooLarge
from culver.overlay.links.frame_format import FrameKind, pack_frame
from culver.overlay.links.refusals import decode_refusal
from support.linked_sites import FakePeer, Run, fake_peer, key_of, linked_fake, reserved_port, run_on, site
from support.severable import severable
from support.until import settled, until


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)


# Links.


def test_two_sites_link_and_exchange_frames(run: Run) -> None:
    async def body() -> None:
        async with (
            site("berlin") as berlin,
            site("amsterdam", f"{berlin.address}?label=fast&cost=7") as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            here, there = amsterdam.link(), berlin.link()
            assert (here.peer.key, here.peer.cost, here.peer.label, here.peer.dialled) == (
                key_of("berlin"), 7, "fast", True
            )  # fmt: skip
            assert (there.peer.key, there.peer.cost, there.peer.label, there.peer.dialled) == (
                key_of("amsterdam"), 7, "fast", False
            )  # fmt: skip
            assert here.peer.address == berlin.address
            large = bytes(range(256)) * 8_000
            assert here.send(b"one", urgent=False)
            assert here.send(large, urgent=False)
            assert there.send(b"two", urgent=True)
            await until(lambda: len(berlin.bodies) == 2 and amsterdam.bodies)
            assert berlin.bodies == [(there.number, b"one"), (there.number, large)]
            assert amsterdam.bodies == [(here.number, b"two")]
            await until(lambda: here.rtt_seconds is not None and there.rtt_seconds is not None)
            assert (here.frames_sent, here.frames_received, there.frames_received) == (2, 1, 2)
            assert here.bytes_sent > len(large)
            assert there.bytes_received > len(large)
            assert here.queued_bytes == 0
            state = amsterdam.manager.peers[0]
            assert (state.state, state.attempts, state.key) == ("connected", 1, key_of("berlin"))

    run(body())


def test_a_frame_that_either_side_does_not_take_is_too_large_to_send(run: Run) -> None:
    async def body() -> None:
        async with (
            site("berlin", max_frame_bytes=10_000) as berlin,
            site("amsterdam", berlin.address) as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            assert amsterdam.link().send(bytes(10_000), urgent=False)
            with pytest.raises(TooLarge):
                amsterdam.link().send(bytes(10_001), urgent=False)
            await until(lambda: berlin.bodies)

    run(body())


def test_a_closed_link_tells_both_sides_the_reason_once_and_is_dialled_again(run: Run) -> None:
    async def body() -> None:
        async with site("berlin") as berlin, site("amsterdam", berlin.address) as amsterdam:
            await until(lambda: berlin.links and amsterdam.links)
            old = berlin.link()
            old.close("maintenance")
            old.close("again")
            assert not old.is_open
            assert not old.send(b"late", urgent=True)
            assert berlin.count("closed") == 0
            await until(lambda: berlin.count("opened") == 2 and amsterdam.count("opened") == 2)
            assert berlin.events[1] == ("closed", key_of("amsterdam"), "maintenance")
            assert amsterdam.events[1] == ("closed", key_of("berlin"), "the peer closed: maintenance")
            assert berlin.link().number > old.number

    run(body())


def test_an_address_can_be_dialled_later_and_no_longer(run: Run) -> None:
    async def body() -> None:
        async with site("berlin") as berlin, site("amsterdam") as amsterdam:
            for _ in range(2):
                amsterdam.manager.dial(berlin.address)
                amsterdam.manager.dial(berlin.address)
                await until(lambda: berlin.links and amsterdam.links)
                assert [each.state for each in amsterdam.manager.peers] == ["connected"]
                amsterdam.manager.hang_up(berlin.address, "enough")
                await until(lambda: not berlin.links and not amsterdam.links)
                assert berlin.events[-1] == ("closed", key_of("amsterdam"), "the peer closed: enough")
                assert amsterdam.manager.peers == ()
            amsterdam.manager.hang_up(berlin.address, "nobody was dialled")
            await settled()
            assert (berlin.count("opened"), berlin.links) == (2, [])

    run(body())


def test_links_come_back_when_they_are_cut(run: Run) -> None:
    async def body() -> None:
        async with (
            site("berlin") as berlin,
            severable(berlin.manager.port) as relay,
            site("amsterdam", relay.url.removeprefix("http://")) as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            relay.sever()
            await until(lambda: amsterdam.count("opened") == 2 and berlin.count("opened") == 2)
            assert amsterdam.refusals == []

    run(body())


def test_an_observer_that_fails_loses_the_link_and_nothing_else(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with (
            site("amsterdam") as amsterdam,
            linked_fake(amsterdam, "berlin") as berlin,
            linked_fake(amsterdam, "cairo") as cairo,
        ):
            amsterdam.fails_at = b"bad"
            berlin.say(FrameKind.DATA, b"bad")
            berlin.say(FrameKind.DATA, b"never seen")
            await until(lambda: amsterdam.count("closed") == 1)
            cairo.say(FrameKind.DATA, b"good")
            await until(lambda: [each for _, each in amsterdam.bodies] == [b"good"])

    run(body())
    assert "the observer fails" in caplog.text


# One connection for each pair and label.


@pytest.mark.parametrize("first", ["amsterdam", "berlin"])
def test_sites_that_dial_each_other_keep_one_link_without_a_flap(run: Run, first: str) -> None:
    async def body() -> None:
        second = "berlin" if first == "amsterdam" else "amsterdam"
        with reserved_port() as port, reserved_port() as other:
            async with site(first, f"127.0.0.1:{other}", listen=f"127.0.0.1:{port}") as one:
                await until(lambda: one.manager.peers[0].attempts)
                async with site(second, f"127.0.0.1:{port}", listen=f"127.0.0.1:{other}") as two:
                    await until(lambda: one.links and two.links)
                    await until(
                        lambda: one.manager.peers[0].state == two.manager.peers[0].state == "connected"
                    )
                    await settled(lambda: (len(one.events), len(two.events)))
                    assert (one.count("opened"), two.count("opened")) == (1, 1)
                    assert (one.count("closed"), two.count("closed")) == (0, 0)
                    assert one.link().peer.dialled == (first == "amsterdam")
                    assert one.refusals == two.refusals == []

    run(body())


def test_the_larger_site_links_when_the_smaller_cannot_reach_it(run: Run) -> None:
    async def body() -> None:
        with reserved_port() as port:
            async with (
                site("amsterdam", f"127.0.0.1:{port}") as amsterdam,
                site("berlin", amsterdam.address) as berlin,
            ):
                await until(lambda: amsterdam.links and berlin.links)
                assert amsterdam.link().peer.dialled is False
                state = amsterdam.manager.peers[0]
                assert state.state == "connecting"
                assert "cannot connect" in state.failure

    run(body())


def test_different_labels_are_different_links(run: Run) -> None:
    async def body() -> None:
        async with site("berlin") as berlin:
            peers = (f"{berlin.address}?label=a", f"{berlin.address}?label=b&cost=3", berlin.address)
            async with site("amsterdam", *peers) as amsterdam:
                await until(lambda: len(berlin.links) == len(amsterdam.links) == 3)
                assert {(link.peer.label, link.peer.cost) for link in berlin.links} == {
                    ("a", 1), ("b", 3), ("", 1)
                }  # fmt: skip

    run(body())


def test_a_second_address_of_the_same_site_is_no_second_link(run: Run) -> None:
    async def body() -> None:
        async with site("berlin") as berlin, severable(berlin.manager.port) as relay:
            peers = (berlin.address, relay.url.removeprefix("http://"))
            async with site("amsterdam", *peers) as amsterdam:
                await until(lambda: [each.state for each in amsterdam.manager.peers] == ["connected"] * 2)
                assert (amsterdam.count("opened"), berlin.count("opened")) == (1, 1)

    run(body())


@pytest.mark.parametrize("name", ["amsterdam", "cairo"])
def test_a_newer_boot_replaces_at_once_and_an_older_one_is_refused(run: Run, name: str) -> None:
    async def greet(fake: FakePeer, boot: int) -> None:
        fake.say_hello(name, boot=boot)
        if name == "amsterdam":
            await fake.hear_kind(FrameKind.HELLO)
            fake.say(FrameKind.OPEN)
        else:
            await fake.hear_kind(FrameKind.OPEN)

    async def body() -> None:
        async with site("berlin") as berlin, fake_peer(berlin.manager.port) as old:
            await greet(old, 4)
            await until(lambda: berlin.links)
            async with fake_peer(berlin.manager.port) as new:
                await greet(new, 5)
                await until(lambda: berlin.count("opened") == 2)
                assert [event[0] for event in berlin.events] == ["opened", "closed", "opened"]
                assert "boot 5 follows 4" in berlin.events[1][2]
                assert "boot 5 follows 4" in decode_refusal(await old.hear_kind(FrameKind.REFUSE)).words
                async with fake_peer(berlin.manager.port) as late:
                    late.say_hello(name, boot=4)
                    (frame,) = await late.hear_all()
                    assert "older than 5" in decode_refusal(frame.content).words
                assert berlin.link().peer.boot == 5

    run(body())


def test_a_newer_boot_ends_the_links_of_all_labels(run: Run) -> None:
    async def body() -> None:
        async with (
            site("amsterdam") as amsterdam,
            linked_fake(amsterdam, "berlin", label="a"),
            linked_fake(amsterdam, "berlin", label="b"),
            linked_fake(amsterdam, "berlin", label="a", boot=2),
        ):
            assert [(link.peer.label, link.peer.boot) for link in amsterdam.links] == [("a", 2)]

    run(body())


def test_a_second_connection_of_one_boot_replaces_only_a_silent_one(run: Run) -> None:
    async def body() -> None:
        async with (
            site("amsterdam", keep_alive_seconds=0.1, dead_seconds=30.0) as amsterdam,
            linked_fake(amsterdam, "berlin"),
        ):
            async with fake_peer(amsterdam.manager.port) as second:
                second.say_hello("berlin")
                kinds = [frame.kind for frame in await second.hear_all()]
                assert kinds == [FrameKind.HELLO, FrameKind.REFUSE]
            first = amsterdam.link()
            # The first one answers no ping.
            before = first.bytes_sent
            await until(lambda: first.bytes_sent > before + 3 * len(pack_frame(FrameKind.PING, bytes(8))))
            async with linked_fake(amsterdam, "berlin"):
                assert amsterdam.link().number > first.number
                assert amsterdam.refusals == []

    run(body())


# Silence.


def test_a_half_open_connection_is_found_by_its_silence(run: Run) -> None:
    times: dict[str, Any] = {"keep_alive_seconds": 0.1, "dead_seconds": 0.3}

    async def body() -> None:
        async with (
            site("berlin", **times) as berlin,
            severable(berlin.manager.port) as relay,
            site("amsterdam", relay.url.removeprefix("http://"), **times) as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            relay.flowing.clear()
            await until(lambda: amsterdam.count("closed") == 1)
            assert amsterdam.events[1] == ("closed", key_of("berlin"), "silent for 0.3 s")
            relay.flowing.set()
            await until(lambda: amsterdam.links and berlin.links)

    run(body())


def test_an_idle_link_stays(run: Run) -> None:
    times: dict[str, Any] = {"keep_alive_seconds": 0.05, "dead_seconds": 0.1}

    async def body() -> None:
        async with site("berlin", **times) as berlin, site("amsterdam", berlin.address, **times) as amsterdam:
            await until(lambda: berlin.links and amsterdam.links)
            await until(lambda: amsterdam.link().bytes_received > 350)
            assert (berlin.count("closed"), amsterdam.count("closed")) == (0, 0)

    run(body())


# Slow readers.


def test_a_slow_reader_delays_no_other_link_and_urgent_frames_overtake_data(run: Run) -> None:
    async def body() -> None:
        async with (
            site("amsterdam", max_frame_bytes=1 << 20, queue_bytes=1 << 20) as amsterdam,
            linked_fake(amsterdam, "berlin") as slow,
            linked_fake(amsterdam, "cairo") as quick,
        ):
            links = {link.peer.key: link for link in amsterdam.links}
            to_slow, to_quick = links[key_of("berlin")], links[key_of("cairo")]
            sent = 0
            while True:
                # Until the queue is full, though the kernel and the fake's reader have taken what they take.
                if to_slow.send(b"%08d" % sent + bytes(32_768), urgent=False):
                    sent += 1
                    continue
                before = to_slow.bytes_sent
                await settled(lambda: to_slow.bytes_sent)
                if to_slow.bytes_sent == before:
                    break
            assert to_slow.frames_dropped >= 1
            assert (1 << 20) - 65_536 < to_slow.queued_bytes < (2 << 20)
            assert to_slow.send(b"urgent", urgent=True)
            assert to_quick.send(b"quick", urgent=False)
            async with asyncio.timeout(2):
                assert await quick.hear_kind(FrameKind.DATA) == b"quick"
            # What the slow peer says is heard, though it reads nothing.
            slow.say(FrameKind.DATA, b"heard")
            await until(lambda: amsterdam.bodies)
            order: list[bytes] = []
            while len(order) < sent + 1:
                order.append(await slow.hear_kind(FrameKind.DATA))
            place = order.index(b"urgent")
            assert place < sent - (1 << 20) // 32_768 + 4
            assert [int(each[:8]) for each in order[:place] + order[place + 1 :]] == list(range(sent))

    run(body())


def test_a_link_whose_urgent_frames_pile_up_is_closed_as_stuck(run: Run) -> None:
    async def body() -> None:
        async with (
            site("amsterdam", max_frame_bytes=65_536, queue_bytes=65_536) as amsterdam,
            linked_fake(amsterdam, "berlin"),
        ):
            link = amsterdam.link()
            while link.send(bytes(65_536), urgent=True):
                await settled(lambda: link.bytes_sent)
            assert not link.is_open
            await until(lambda: amsterdam.count("closed"))
            assert amsterdam.events[1][2].startswith("stuck: ")

    run(body())


# The life of a manager.


def test_a_port_that_is_taken_is_named(run: Run) -> None:
    async def body() -> None:
        async with site("amsterdam") as amsterdam:
            with pytest.raises(InvalidConfiguration, match=r"overlay.listen .* cannot be used"):
                async with site("berlin", listen=amsterdam.address):
                    pass

    run(body())


def test_a_site_can_stop_at_any_moment_of_a_greeting(run: Run) -> None:
    async def body() -> None:
        for turns in range(40):
            async with site("berlin") as berlin, site("amsterdam", berlin.address):
                for _ in range(turns):
                    await asyncio.sleep(0)

    run(body())


def test_an_error_in_the_body_comes_out_as_it_is(run: Run) -> None:
    async def body() -> None:
        with pytest.raises(KeyError):
            async with site("berlin") as berlin, site("amsterdam", berlin.address):
                raise KeyError

    run(body())


def test_a_site_that_stops_closes_its_links_with_a_reason(run: Run) -> None:
    async def body() -> None:
        async with site("berlin") as berlin:
            async with site("amsterdam", berlin.address, listen="") as amsterdam:
                await until(lambda: berlin.links and amsterdam.links)
                assert amsterdam.manager.port == 0
            assert amsterdam.events[1] == ("closed", key_of("berlin"), "the site stops")
            await until(lambda: berlin.count("closed"))
            assert berlin.events[1][2] == "the peer closed: the site stops"

    run(body())
