"""What a site may let go of, by what its gateways have told."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from culver.delivery.hub import Finished
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.errors import Unavailable
from culver.site.gateway_group import Group
from culver.site.gateway_member import Attachment
from culver.site.gateway_messages import Reached, Report
from support.gateway import run
from support.notifications import registration


@pytest.fixture
def group() -> Iterator[Group]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(2)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        yield Group(listeners, Path("unused"))


def attach(group: Group, number: int) -> Attachment:
    member = group._members[number - 1]
    member.attachment = Attachment({}, member._on_message)
    return member.attachment


def tell(group: Group, number: int, message: Reached | Report) -> None:
    group._members[number - 1]._on_message(message)


def test_nothing_is_let_go_before_every_gateway_has_told_its_needs(group: Group) -> None:
    async def scenario() -> None:
        for number in (1, 2):
            attach(group, number)
        assert group.needed_from() == 0
        tell(group, 1, Report(needed_from=70))
        assert group.needed_from() == 0
        tell(group, 2, Report(needed_from=50))
        assert group.needed_from() == 50
        group._members[1].attachment = None
        tell(group, 1, Report(needed_from=90))
        assert group.needed_from() == 50, "the needs of one that is down are known"

    run(scenario())


def test_site_alone_needs_nothing_for_others() -> None:
    assert Group([], Path("unused")).needed_from() == NEVER
    assert Group([], Path("unused")).release(["a"]) == ["a"]
    assert Group([], Path("unused")).take_finished(Finished([1], [2])) == Finished([1], [2])


def test_file_goes_once_every_gateway_that_runs_is_past_it(group: Group) -> None:
    async def scenario() -> None:
        first = attach(group, 1)
        assert group.release([]) == []
        group.accepted(0, 5, 5)
        assert group.release(["a"]) == []
        attach(group, 2)  # it has never heard of that file
        tell(group, 1, Reached(1, 5))
        assert group.release([]) == ["a"]
        assert group.release([]) == [], "each once"
        group.accepted(5, 6, 6)
        assert group.release(["b"]) == []
        tell(group, 2, Reached(1, 6))
        assert group.release([]) == []
        first.peer.lost.set()
        assert group.release([]) == ["b"], "what reads no more does not hold anything"

    run(scenario())


def test_block_is_finished_when_all_gateways_have_done_with_it(group: Group) -> None:
    async def scenario() -> None:
        for number in (1, 2):
            attach(group, number)
        tell(group, 2, Report(finished=Finished([7], [20])))
        assert group.take_finished(Finished([3], [])) == Finished([3, 7], [])
        assert group.take_finished(Finished([], [20])) == Finished([], [])
        tell(group, 1, Report(finished=Finished([], [20])))
        assert group.take_finished(Finished()) == Finished([], [20])
        assert group.take_finished(Finished()) == Finished()

    run(scenario())


def test_process_of_a_gateway_is_watched_even_when_another_has_taken_its_place(group: Group) -> None:
    async def scenario() -> None:
        assert group.watch(1)()
        first = attach(group, 1)
        is_gone = group.watch(1)
        assert not is_gone()
        first.peer.lost.set()
        attach(group, 1)
        assert is_gone()
        assert not group.watch(1)()

    run(scenario())


def test_gateway_hears_of_its_own_subscriptions_only(group: Group) -> None:
    async def scenario() -> None:
        attachments = [attach(group, number) for number in (1, 2)]
        group.register([registration(1, "alerts")])
        assert sum(each.announced for each in attachments) <= 1
        for number in range(2, 40):
            group.register([registration(number, f"s{number}")])
        counts = [each.announced for each in attachments]
        assert 39 > sum(counts) > 15
        assert all(counts)

    run(scenario())


def test_mailbox_of_a_gateway_that_is_down_cannot_be_asked_for(group: Group) -> None:
    async def scenario() -> None:
        with pytest.raises(Unavailable, match=r"gateway [12] of the site is starting"):
            await group.ask_pending([f"s{number}" for number in range(20)])

    run(scenario())
