"""A site, a Master and two Workers with addresses of their own, in network namespaces: with `--full`, as root.

By hand, with what is seen:

    PYTHONPATH=src:tests python tests/system/test_several_machines.py
"""

import time
from pathlib import Path

import click
import pytest

from support.network_hosts import NetworkHosts
from support.several_machines import SeveralMachines

EVENTS_PER_SECOND = 2_000


def play(machines: SeveralMachines, cut_seconds: float) -> None:
    hosts = machines.hosts
    with machines.traffic():
        machines.time("events flow", machines.flows_for_a_while)

        machines.begin("a Worker joins")
        machines.join("two")
        machines.time(
            "the executor on the new Worker has its first task", lambda: machines.python_workers("two")
        )
        machines.time("events flow", machines.flows_for_a_while)
        assert hosts.listening("two") == {hosts.address("two")}

        machines.begin("a Worker leaves")
        machines.leave("one")
        machines.time("events flow through the other Worker", machines.flows_for_a_while)
        machines.join("one")
        machines.time("its executor has its first task", lambda: machines.python_workers("one"))
        machines.time("events flow", machines.flows_for_a_while)

        machines.begin("a Worker with a task is cut off")
        before, late = machines.executors("two"), machines.python_workers("two")
        for each in late:
            each.suspend()
        machines.time("a task hangs there", lambda: not machines.flows())
        hosts.cut("two")
        machines.time("events flow through the other Worker", machines.flows)
        for each in late:
            each.resume()  # its result comes late, and others have it
        machines.time("events flow, with a late result", machines.flows_for_a_while)
        hosts.restore("two")
        machines.begin("the Worker is back")
        machines.time(
            "a new executor there has its first task", lambda: machines.python_workers("two", but=before)
        )
        machines.time("the old executor is gone", lambda: not set(before) & set(machines.executors("two")))
        machines.time("events flow", machines.flows_for_a_while)

        machines.begin("the Master is cut off")
        hosts.cut("head")
        time.sleep(cut_seconds)
        assert machines.flows()
        hosts.restore("head")
        machines.time("events flow", machines.flows_for_a_while)

        machines.begin("the site is cut off")
        hosts.cut("site")
        time.sleep(cut_seconds)
        hosts.restore("site")
        machines.time("events flow after the site is back", machines.flows)
        machines.time("events flow", machines.flows_for_a_while)


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_repeated_while_machines_come_go_and_are_cut_off(
    tmp_path: Path, full_length: bool
) -> None:
    if not full_length:
        pytest.skip("runs a cluster for minutes; --full runs it")
    if (missing := NetworkHosts.missing()) is not None:
        pytest.skip(missing)
    with SeveralMachines(tmp_path, EVENTS_PER_SECOND, lambda line: None) as machines:
        play(machines, cut_seconds=45)
    audit = machines.seen.audit
    assert audit is not None
    assert (audit.lost, audit.duplicated, audit.foreign) == (0, 0, 0), machines.seen
    assert audit.deliveries > 0
    stalls = machines.seen.longest_stalls
    assert max(stalls["a Worker leaves"], stalls["the Master is cut off"]) < 30, stalls


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default="machines")
@click.option("--rate", default=EVENTS_PER_SECOND, help="Events a second.")
@click.option("--cut", default=45.0, help="Seconds for which the Master, and then the site, is cut off.")
@click.option("--spark-conf", "settings", multiple=True, help="A setting of Spark, NAME=VALUE.")
def main(directory: Path, rate: int, cut: float, settings: tuple[str, ...]) -> None:
    directory.mkdir(parents=True)
    with SeveralMachines(directory.absolute(), rate, click.echo, *settings) as machines:
        play(machines, cut)
    seen = machines.seen
    for name, seconds in seen.longest_stalls.items():
        click.echo(f"{seconds:6.1f} s  longest stall: {name}")
    click.echo(f"{seen.acknowledged:,} events acknowledged, {seen.unknown:,} without an answer; {seen.audit}")


if __name__ == "__main__":
    main()
