"""Whatever connects to a site and breaks the protocol is refused, named once, and changes nothing else."""

import asyncio

import pytest

from culver.overlay.links.frame_format import FrameKind, pack_frame
from culver.overlay.links.hello import encode_hello
from culver.overlay.links.listener import MOST_WAITING
from culver.overlay.links.refusals import decode_refusal
from support.linked_sites import Run, fake_peer, key_of, linked_fake, reserved_port, run_on, site
from support.until import settled, until


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))


_HELLO = pack_frame(FrameKind.HELLO, encode_hello(key_of("berlin"), 1, "", 1, 1 << 20))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff\xff\xff\xff" + bytes(8), "a frame of 4294967294 bytes exceeds 4096"),
        (pack_frame(FrameKind.HELLO, bytes(5_000)), "a frame of 5000 bytes exceeds 4096"),
        (damaged(_HELLO), "a frame does not have its checksum"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "exceeds 4096"),
        (bytes(64), "a frame has not even a kind"),
        (b"", "the greeting was not over after 0.3 s"),
        (_HELLO[:20], "the greeting was not over after 0.3 s"),
        (pack_frame(FrameKind.HELLO, b"\xc1"), "the hello cannot be read"),
        (pack_frame(FrameKind.HELLO, b"\x92\xa3who\x01"), "the hello is not that of a site"),
        (pack_frame(FrameKind.HELLO, b"\x92\xaeculver-overlay\x63"), "different versions of the protocol, 99 and 1"),
        (pack_frame(FrameKind.HELLO, encode_hello("a~b", 1, "", 1, 1 << 20)), "impossible key or label"),
        (pack_frame(FrameKind.HELLO, encode_hello(key_of("amsterdam"), 1, "", 1, 1 << 20)), "own key"),
        (pack_frame(FrameKind.HELLO, encode_hello(key_of("dublin"), 1, "", 1, 1 << 20)), "dublin is not among"),
        (pack_frame(FrameKind.DATA, b"x"), "kind DATA has a wrong length or comes out of turn"),
        (pack_frame(FrameKind.PING, bytes(8)), "kind PING has a wrong length or comes out of turn"),
    ],
)  # fmt: skip
def test_a_hostile_connection_is_refused_and_reported_once(said: bytes, reason: str) -> None:
    async def body() -> None:
        async with (
            site("amsterdam", allowed=("berlin", "cairo"), hello_seconds=0.3) as amsterdam,
            linked_fake(amsterdam, "cairo") as cairo,
        ):

            async def attack() -> None:
                async with fake_peer(amsterdam.manager.port) as fake:
                    fake.writer.write(said)
                    # Nothing but the refusal, and the end.
                    (frame,) = await fake.hear_all()
                    assert frame.kind is FrameKind.REFUSE
                    assert reason in decode_refusal(frame.content).words

            await asyncio.gather(*(attack() for _ in range(3)))
            await settled(lambda: len(amsterdam.refusals))
            assert [reason in words for _, words in amsterdam.refusals] == [True]
            cairo.say(FrameKind.DATA, b"still here")
            await until(lambda: amsterdam.bodies)
            assert len(amsterdam.events) == 1

    run_on("uvloop")(body())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff\xff\xff\xff" + bytes(8), "a frame of 4294967294 bytes exceeds 1048576"),
        (damaged(pack_frame(FrameKind.DATA, b"x")), "a frame does not have its checksum"),
        (_HELLO, "kind HELLO has a wrong length or comes out of turn"),
        (pack_frame(FrameKind.OPEN), "kind OPEN has a wrong length or comes out of turn"),
        (pack_frame(FrameKind.PING, b""), "kind PING has a wrong length"),
        (b"\0\0\0\1" + b"\0\0\0\0" + b"\x09", "checksum"),
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_its_link_and_nothing_else(said: bytes, reason: str) -> None:
    async def body() -> None:
        async with (
            site("amsterdam", max_frame_bytes=1 << 20) as amsterdam,
            linked_fake(amsterdam, "berlin") as berlin,
            linked_fake(amsterdam, "cairo") as cairo,
        ):
            berlin.say(FrameKind.DATA, b"good")
            berlin.writer.write(said + pack_frame(FrameKind.DATA, b"after"))
            assert reason in decode_refusal(await berlin.hear_kind(FrameKind.REFUSE)).words
            cairo.say(FrameKind.DATA, b"still here")
            await until(lambda: len(amsterdam.bodies) == 2)
            assert [body for _, body in amsterdam.bodies] == [b"good", b"still here"]
            assert next(event for event in amsterdam.events if event[0] == "closed")[1] == key_of("berlin")

    run_on("uvloop")(body())


def test_a_peer_may_not_open_what_the_site_chooses() -> None:
    async def body() -> None:
        with reserved_port() as port:
            # Its own attempt at the other address lets the accepted connection wait.
            async with site("amsterdam", f"127.0.0.1:{port}") as amsterdam:
                async with fake_peer(amsterdam.manager.port) as fake:
                    fake.writer.write(_HELLO + pack_frame(FrameKind.OPEN))
                    (_, frame) = await fake.hear_all()
                    assert frame.kind is FrameKind.REFUSE
                assert amsterdam.events == []

    run_on("uvloop")(body())


def test_a_site_that_finds_itself_at_an_address_refuses(run: Run) -> None:
    async def body() -> None:
        with reserved_port() as port:
            async with site("amsterdam", f"127.0.0.1:{port}", listen=f"127.0.0.1:{port}") as amsterdam:
                await until(lambda: "own key" in amsterdam.manager.peers[0].state)
                assert amsterdam.manager.peers[0].state.startswith("refused: ")
                assert amsterdam.events == []

    run(body())


def test_many_silent_connections_do_not_keep_a_site_out(run: Run) -> None:
    async def body() -> None:
        async with site("amsterdam") as amsterdam:
            writers = []
            for _ in range(MOST_WAITING + 20):
                _, writer = await asyncio.open_connection("127.0.0.1", amsterdam.manager.port)
                writers.append(writer)
            async with site("berlin", amsterdam.address) as berlin:
                await until(lambda: berlin.links and amsterdam.links)
            await until(lambda: amsterdam.refusals)
            assert len(amsterdam.refusals) == 1
            assert "wait for their hello" in amsterdam.refusals[0][1]
            for writer in writers:
                writer.transport.abort()

    run(body())


def test_the_number_of_links_with_one_site_is_bounded() -> None:
    async def body() -> None:
        async with site("amsterdam") as amsterdam:
            fakes = [fake_peer(amsterdam.manager.port) for _ in range(17)]
            for number, each in enumerate(fakes):
                fake = await each.__aenter__()
                fake.say_hello("berlin", label=f"l{number}")
                await fake.hear()
            assert len(amsterdam.links) == 16
            for each in fakes:
                await each.__aexit__(None, None, None)

    run_on("uvloop")(body())
