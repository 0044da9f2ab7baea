"""A link against servers that a test scripts: order of replies and pushes, refusals, silence and the end."""

import asyncio
import logging
from collections.abc import Callable

import pytest
import uvloop

from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings, Push, RedisLink
from culver.errors import (
    CommandRefused,
    CulverError,
    InvalidConfiguration,
    ServerAccessDenied,
    ServerBusy,
    ServerError,
    ServerUnreachable,
    ServerUnsuitable,
)
from support.redis_servers import HELLO_REPLY, Handler, scripted, silent, strange_server
from support.until import settled, until

QUICK = LinkSettings(connect_seconds=0.2, silence_seconds=0.2)
Happened = list[object]


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def event_loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run on the standard loop and on the one of the services."""
    if request.param == "uvloop":
        monkeypatch.setattr(asyncio, "run", uvloop.run)


def message(channel: bytes, payload: bytes) -> bytes:
    return b">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (
        len(channel),
        channel,
        len(payload),
        payload,
    )


def confirmation(kind: bytes, channel: bytes) -> bytes:
    return b">3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n" % (len(kind), kind, len(channel), channel)


def with_link(
    handler: Handler,
    use: Callable[[RedisLink, Happened], object],
    settings: LinkSettings | None = None,
) -> Happened:
    """What happened on a link to such a server: pushes as lists, the loss as an error, and what ``use`` adds."""
    happened: Happened = []

    async def scenario() -> None:
        def lost(reason: ServerError) -> None:
            happened.append(reason)

        async with strange_server(handler) as url:
            link = RedisLink(url, happened.append, lost, settings=settings or LinkSettings())
            async with link:
                result = use(link, happened)
                if asyncio.iscoroutine(result):
                    await result

    asyncio.run(scenario())
    return happened


@pytest.mark.parametrize(
    ("handler", "error", "says"),
    [
        (scripted(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ServerUnsuitable, "speaks HTTP"),
        (scripted(b"\xff\x00garbage"), ServerUnsuitable, "not a Redis server"),
        (scripted(b"+OK POP3 ready\r\n"), ServerUnsuitable, "answers HELLO with b'OK POP3"),
        (scripted(b"*2\r\n$5\r\nproto\r\n:2\r\n"), ServerUnsuitable, "answers HELLO"),
        (scripted(b"-ERR unknown command `HELLO`, with args\r\n"), ServerUnsuitable, "RESP3"),
        (scripted(b"-NOPROTO unsupported protocol version\r\n"), ServerUnsuitable, "RESP3"),
        (scripted(b"-NOAUTH HELLO must be called authenticated\r\n"), ServerAccessDenied, "wants a password"),
        (scripted(b"-WRONGPASS invalid pair\r\n"), ServerAccessDenied, "refuses the user name or password"),
        (scripted(b"-ERR max number of clients reached\r\n"), ServerBusy, "try again"),
        (silent, ServerUnreachable, "has not answered within 0.2 s"),
    ],
)
def test_wrong_server_is_refused_with_the_reason(
    handler: Handler, error: type[CulverError], says: str
) -> None:
    async def scenario() -> None:
        lost: list[CulverError] = []
        async with strange_server(handler) as url:
            link = RedisLink(url, on_lost=lost.append, settings=QUICK)
            with pytest.raises(error, match=says) as caught:
                await link.connect()
            assert url in caught.value.message
            await link.wait_closed()
        assert not link.is_open
        assert lost == []

    asyncio.run(scenario())


def test_server_that_closes_at_once_is_unreachable_with_its_possible_reasons() -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def scenario() -> None:
        async with strange_server(closes) as url:
            with pytest.raises(ServerUnreachable, match="expects TLS, or is not a Redis server"):
                await RedisLink(url).connect()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1", "unix:///no/such/socket", "redis://no-such-host.invalid"]
)
def test_address_without_a_server_is_unreachable(url: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ServerUnreachable, match=r"no connection to|has not answered"):
            await RedisLink(url).connect()

    asyncio.run(scenario())


def test_wrong_url_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidConfiguration):
        RedisLink("http://127.0.0.1")


def test_greeting_carries_user_password_and_name() -> None:
    heard: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.write(HELLO_REPLY)
        await reader.read()

    async def scenario() -> None:
        async with strange_server(handle) as url:
            access = ServerAccess("ann", "secret")
            async with RedisLink(url, access=access, name="me") as link:
                assert link.version == "9.9.9"
            async with RedisLink(url.replace("//", "//:other@"), access=access) as link:
                assert "other" not in link.url
            async with RedisLink(url):
                pass

    asyncio.run(scenario())
    words = [[word for word in each.split(b"\r\n") if word[:1].isalnum()] for each in heard]
    assert words == [
        [b"HELLO", b"3", b"AUTH", b"ann", b"secret", b"SETNAME", b"me"],
        [b"HELLO", b"3", b"AUTH", b"default", b"other"],
        [b"HELLO", b"3"],
    ]


def test_replies_call_back_in_the_order_of_the_commands_and_between_the_pushes() -> None:
    answers = b"".join(
        (b":1\r\n", message(b"a", b"x"), message(b"a", b"y"), b"-ERR no\r\n", message(b"a", b"z"), b"+OK\r\n")
    )

    async def use(link: RedisLink, happened: Happened) -> None:
        for number in b"123":
            link.send((b"GET", bytes((number,))), happened.append)
        await until(lambda: len(happened) == 5)

    one, pushes, refused, later, three = with_link(scripted(HELLO_REPLY, answers), use)
    assert pushes == [[b"message", b"a", b"x"], [b"message", b"a", b"y"]]
    assert later == [[b"message", b"a", b"z"]]
    assert isinstance(refused, CommandRefused)
    assert (one, three) == (1, b"OK")


def test_pushes_of_one_read_come_in_one_list() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"GET", b"a"))
        await until(lambda: happened)

    pushes = b"".join(message(b"a", b"%d" % number) for number in range(100))
    (together,) = with_link(scripted(HELLO_REPLY, b"_\r\n" + pushes), use)
    assert together == [[b"message", b"a", b"%d" % number] for number in range(100)]


def test_reply_that_arrives_in_pieces_is_put_together() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        happened.append(await link.request((b"GET", b"a")))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        for byte in HELLO_REPLY:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        await reader.read(1000)
        for byte in b"$5\r\nhello\r\n":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        await reader.read()

    assert with_link(handle, use) == [b"hello"]


def test_subscription_is_answered_when_all_its_channels_are_confirmed() -> None:
    answers = (
        confirmation(b"subscribe", b"a"),
        message(b"a", b"early"),
        confirmation(b"subscribe", b"b"),
        b":7\r\n",
    )

    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"subscribe", b"a", b"b"), lambda reply: happened.append(("subscribed", reply)))
        happened.append(await link.request((b"GET", b"a")))

    assert with_link(scripted(HELLO_REPLY, b"".join(answers)), use) == [
        [[b"subscribe", b"a", 1], [b"message", b"a", b"early"], [b"subscribe", b"b", 1]],
        ("subscribed", None),
        7,
    ]


def test_refused_subscription_does_not_take_the_reply_of_another_command() -> None:
    answers = (
        b"+first\r\n",
        b"-NOPERM No permissions to access a channel\r\n",
        b"+second\r\n",
        confirmation(b"psubscribe", b"b*"),
        b"+third\r\n",
    )

    async def use(link: RedisLink, happened: Happened) -> None:
        happened += await asyncio.gather(
            link.request((b"GET", b"1")),
            link.request((b"SUBSCRIBE", b"a")),
            link.request((b"GET", b"2")),
            link.request((b"PSUBSCRIBE", b"b*")),
            link.request((b"GET", b"3")),
            return_exceptions=True,
        )

    pushes, first, refused, second, subscribed, third = with_link(
        scripted(HELLO_REPLY, b"".join(answers)), use
    )
    assert pushes == [[b"psubscribe", b"b*", 1]]
    assert (first, second, subscribed, third) == (b"first", b"second", None, b"third")
    assert isinstance(refused, ServerAccessDenied)


def test_confirmation_that_nobody_asked_for_is_only_a_push() -> None:
    answers = confirmation(b"sunsubscribe", b"moved") + b"+OK\r\n" + confirmation(b"ssubscribe", b"a")

    async def use(link: RedisLink, happened: Happened) -> None:
        replies = await asyncio.gather(link.request((b"GET", b"1")), link.request((b"SSUBSCRIBE", b"a")))
        happened += replies

    assert with_link(scripted(HELLO_REPLY, answers), use) == [
        [[b"sunsubscribe", b"moved", 1]],
        [[b"ssubscribe", b"a", 1]],
        b"OK",
        None,
    ]


def test_unsubscribing_without_names_is_refused() -> None:
    def use(link: RedisLink, happened: Happened) -> None:
        with pytest.raises(ValueError, match="must name its channels"):
            link.send((b"UNSUBSCRIBE",))

    assert with_link(scripted(HELLO_REPLY), use) == []


def test_commands_of_one_turn_are_written_together() -> None:
    reads: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        reads.append((await reader.read(65_536)).count(b"SET"))
        writer.write(b"+OK\r\n" * 50)
        await reader.read()

    async def use(link: RedisLink, happened: Happened) -> None:
        for number in range(50):
            link.send((b"SET", b"a", b"%d" % number), happened.append)
        await until(lambda: len(happened) == 50)

    assert with_link(handle, use) == [b"OK"] * 50
    assert reads == [50]


def test_error_that_nobody_waits_for_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"SET", b"a", b"1"))
        link.send((b"SET", b"a", b"2"))
        link.send((b"GET", b"a"), happened.append)
        await until(lambda: happened)

    with caplog.at_level(logging.WARNING):
        assert with_link(scripted(HELLO_REPLY, b"-OOM full\r\n-OOM full\r\n_\r\n"), use) == [None]
    assert len(caplog.records) == 1
    assert "OOM full" in caplog.text


def test_lost_link_tells_once_and_fails_what_waits_and_drops_what_follows() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        await reader.read(1000)

    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"SET", b"a", b"1"), happened.append)
        replies = await asyncio.gather(
            link.request((b"GET", b"a")), link.request((b"SUBSCRIBE", b"a")), return_exceptions=True
        )
        assert [type(reply) for reply in replies] == [ServerUnreachable, ServerUnreachable]
        await until(lambda: happened)
        assert not link.is_open
        link.send((b"SET", b"a", b"2"), happened.append)
        with pytest.raises(ServerUnreachable, match=r"closed the connection|broke"):
            await link.request((b"GET", b"a"))
        await link.drain()

    (reason,) = with_link(handle, use)
    assert isinstance(reason, ServerUnreachable)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"?garbage\r\n", ServerUnsuitable),
        (b"+OK\r\n+unasked\r\n", ServerUnsuitable),
        (b"+OK\r\n-OOM unasked\r\n", ServerBusy),
    ],
)
def test_open_link_breaks_on_what_no_redis_server_sends(answer: bytes, error: type[CulverError]) -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"GET", b"a"))
        await until(lambda: happened)

    (reason,) = with_link(scripted(HELLO_REPLY, answer), use)
    assert isinstance(reason, error)


def test_messages_before_garbage_are_handed_over() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"GET", b"a"))
        await until(lambda: len(happened) == 2)

    pushes, reason = with_link(scripted(HELLO_REPLY, b"_\r\n" + message(b"a", b"x") + b"?what\r\n"), use)
    assert pushes == [[b"message", b"a", b"x"]]
    assert isinstance(reason, ServerUnsuitable)


def test_silent_server_is_asked_and_then_given_up() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        started = asyncio.get_running_loop().time()
        await until(lambda: happened)
        assert asyncio.get_running_loop().time() - started < 1.0

    heard: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        while data := await reader.read(1000):
            heard.append(data)

    (reason,) = with_link(handle, use, QUICK)
    assert isinstance(reason, ServerUnreachable)
    assert "silent for 0.2 s" in reason.message
    assert heard == [b"*1\r\n$4\r\nPING\r\n"]


def test_quiet_server_that_answers_is_kept() -> None:
    pings: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        while data := await reader.read(1000):
            pings.append(data)
            writer.write(b"+PONG\r\n")

    async def use(link: RedisLink, happened: Happened) -> None:
        await until(lambda: len(pings) == 5)
        assert link.is_open

    assert with_link(handle, use, QUICK) == []


def test_link_that_does_not_read_calls_nobody_silent_and_reads_on_later() -> None:
    received = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        await reader.read(1000)
        writer.write(b"_\r\n" + message(b"a", b"x"))
        received.set()
        await reader.read()

    async def use(link: RedisLink, happened: Happened) -> None:
        loop = asyncio.get_running_loop()
        link.pause_reading()
        link.pause_reading()
        link.send((b"GET", b"a"))
        await received.wait()
        quiet_until = loop.time() + 2 * QUICK.silence_seconds
        await until(lambda: loop.time() > quiet_until)
        assert happened == []
        link.resume_reading()
        link.resume_reading()
        await until(lambda: happened)

    assert with_link(handle, use, QUICK) == [[[b"message", b"a", b"x"]]]


def test_drain_waits_while_the_server_takes_no_data_and_too_much_breaks_the_link() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        await asyncio.get_running_loop().create_future()

    async def use(link: RedisLink, happened: Happened) -> None:
        chunk = bytes(1 << 20)
        await link.drain()
        for _ in range(16):
            link.send((b"SET", b"a", chunk), happened.append)
        draining = asyncio.create_task(link.drain())
        await settled()
        assert not draining.done()
        assert happened == []
        for _ in range(64):
            link.send((b"SET", b"a", chunk), happened.append)
        await draining
        assert not link.is_open

    (reason,) = with_link(handle, use, LinkSettings(most_unsent_bytes=32 << 20))
    assert isinstance(reason, ServerUnreachable)
    assert "takes no data" in reason.message


def test_drain_returns_when_the_server_has_taken_the_data() -> None:
    taken = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        while data := await reader.read(1 << 20):
            taken += len(data)

    async def use(link: RedisLink, happened: Happened) -> None:
        # The kernel's buffers hold some 10 MB.
        for _ in range(32):
            link.send((b"SET", b"a", bytes(1 << 20)))
        await link.drain()
        assert taken > 8 << 20

    assert with_link(handle, use) == []


def test_closed_link_sends_what_was_queued_and_calls_nobody() -> None:
    heard: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        heard.append(await reader.read())

    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"SET", b"a", b"1"), happened.append)
        waiting = asyncio.create_task(link.request((b"GET", b"a")))
        await asyncio.sleep(0)
        link.close()
        link.close()
        with pytest.raises(ServerUnreachable, match="is closed"):
            await waiting
        await link.wait_closed()
        await until(lambda: heard)

    assert with_link(handle, use) == []
    assert b"SET" in heard[0]


def test_close_does_not_wait_for_a_server_that_takes_no_data() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HELLO_REPLY)
        await asyncio.get_running_loop().create_future()

    async def use(link: RedisLink, happened: Happened) -> None:
        link.send((b"SET", b"a", bytes(16 << 20)))
        link.close()
        await asyncio.wait_for(link.wait_closed(), 5)

    assert with_link(handle, use) == []


def test_callback_that_closes_the_link_hears_nothing_more() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        def first(reply: object) -> None:
            happened.append(reply)
            link.close()

        link.send((b"GET", b"a"), first)
        link.send((b"GET", b"b"), happened.append)
        await link.wait_closed()

    answers = b"+one\r\n" + message(b"a", b"x") + b"+two\r\n"
    assert with_link(scripted(HELLO_REPLY, answers), use) == [b"one"]


def test_callback_that_raises_breaks_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[ServerError]:
        lost: list[ServerError] = []

        def stumble(pushes: list[Push]) -> None:
            raise LookupError("a bug")

        handler = scripted(HELLO_REPLY, b"_\r\n" + message(b"a", b"x"))
        async with strange_server(handler) as url, RedisLink(url, stumble, lost.append) as link:
            link.send((b"GET", b"a"))
            await until(lambda: lost)
        return lost

    (reason,) = asyncio.run(scenario())
    assert "a bug" in reason.message


def test_cancelled_request_leaves_the_order_of_replies_alone() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        first = asyncio.create_task(link.request((b"GET", b"1")))
        second = asyncio.create_task(link.request((b"GET", b"2")))
        await asyncio.sleep(0)
        first.cancel()
        happened.append(await second)

    assert with_link(scripted(HELLO_REPLY, b"+one\r\n+two\r\n"), use) == [b"two"]


def test_link_connects_once() -> None:
    async def use(link: RedisLink, happened: Happened) -> None:
        with pytest.raises(RuntimeError, match="connects once"):
            await link.connect()

    assert with_link(scripted(HELLO_REPLY), use) == []


def test_link_that_was_never_open_drops_and_refuses() -> None:
    async def scenario() -> None:
        link = RedisLink("redis://127.0.0.1:1")
        link.send((b"GET", b"a"))
        link.close()
        await link.wait_closed()
        with pytest.raises(ServerUnreachable, match="not open"):
            await link.request((b"GET", b"a"))

    asyncio.run(scenario())
