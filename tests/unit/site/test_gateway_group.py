"""The site drops nothing that one of its gateways still needs."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from culver.delivery.hub import FinishedRegistrations
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.errors import Unavailable
from culver.site.gateway_group import GatewayGroup
from culver.site.gateway_messages import GatewayReport, Reached
from culver.site.gateway_supervisor import GatewayRun
from support.gateway import run
from support.notifications import registration


@pytest.fixture
def group() -> Iterator[GatewayGroup]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(2)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        yield GatewayGroup(listeners, Path("unused"))


def attach(group: GatewayGroup, number: int) -> GatewayRun:
    supervisor = group._supervisors[number - 1]
    supervisor.current = GatewayRun(number, lambda run: None, supervisor._on_message)
    return supervisor.current


def tell(group: GatewayGroup, number: int, message: Reached | GatewayReport) -> None:
    group._supervisors[number - 1]._on_message(message)


def test_nothing_is_let_go_before_every_gateway_has_told_its_needs(group: GatewayGroup) -> None:
    async def scenario() -> None:
        for number in (1, 2):
            attach(group, number)
        assert group.needed_from() == 0
        tell(group, 1, GatewayReport(needed_from=70))
        assert group.needed_from() == 0
        tell(group, 2, GatewayReport(needed_from=50))
        assert group.needed_from() == 50
        group._supervisors[1].current = None
        tell(group, 1, GatewayReport(needed_from=90))
        assert group.needed_from() == 50, "the needs of one that is down are known"

    run(scenario())


def test_site_alone_needs_nothing_for_others() -> None:
    assert GatewayGroup([], Path("unused")).needed_from() == NEVER
    assert GatewayGroup([], Path("unused")).release(["a"]) == ["a"]
    finished = FinishedRegistrations([1], [2])
    assert GatewayGroup([], Path("unused")).take_finished(finished) == finished


def test_file_goes_once_every_gateway_that_runs_is_past_it(group: GatewayGroup) -> None:
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


def test_block_is_finished_when_all_gateways_have_done_with_it(group: GatewayGroup) -> None:
    async def scenario() -> None:
        for number in (1, 2):
            attach(group, number)
        tell(group, 2, GatewayReport(finished=FinishedRegistrations([7], [20])))
        assert group.take_finished(FinishedRegistrations([3], [])) == FinishedRegistrations([3, 7], [])
        assert group.take_finished(FinishedRegistrations([], [20])) == FinishedRegistrations([], [])
        tell(group, 1, GatewayReport(finished=FinishedRegistrations([], [20])))
        assert group.take_finished(FinishedRegistrations()) == FinishedRegistrations([], [20])
        assert group.take_finished(FinishedRegistrations()) == FinishedRegistrations()

    run(scenario())


def test_gateway_hears_of_its_own_subscriptions_only(group: GatewayGroup) -> None:
    async def scenario() -> None:
        runs = [attach(group, number) for number in (1, 2)]
        group.register([registration(1, "alerts")])
        assert sum(each.announced for each in runs) <= 1
        for number in range(2, 40):
            group.register([registration(number, f"s{number}")])
        counts = [each.announced for each in runs]
        assert 39 > sum(counts) > 15
        assert all(counts)

    run(scenario())


def test_mailbox_of_a_gateway_that_is_down_cannot_be_asked_for(group: GatewayGroup) -> None:
    async def scenario() -> None:
        with pytest.raises(Unavailable, match=r"gateway [12] of the site is starting"):
            await group.count_pending([registration(n, f"s{n}") for n in range(20)], lambda name: 0)

    run(scenario())
