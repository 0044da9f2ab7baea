"""Something is killed every few seconds while events flow: nothing lost, nothing twice.

By hand, for as long as wanted:

    PYTHONPATH=src:tests python tests/system/test_chaos.py --seconds 600 --rate 20000 --every 15
"""

from pathlib import Path

import click
import pytest

from support.chaos import KINDS, Chaos


@pytest.mark.system
@pytest.mark.timeout(1800)
@pytest.mark.slow(seconds=10)
def test_nothing_is_lost_or_repeated_while_processes_are_killed(tmp_path: Path, full_length: bool) -> None:
    """At full length on a cluster, every kind of process; otherwise a site on the inline engine, for some seconds."""
    report = Chaos(
        tmp_path,
        engine="spark" if full_length else "inline",
        seconds=600 if full_length else 5,
        every_seconds=15 if full_length else 1.5,
        events_per_second=20_000 if full_length else 4_000,
        subscriptions=200 if full_length else 20,
        seed=20130629,
        say=lambda line: None,
    ).run()
    assert (report.lost, report.duplicated, report.foreign) == (0, 0, 0), report
    assert report.deliveries > 0
    assert set(report.kills) == set(KINDS if full_length else ["site"]), report


@pytest.mark.system
@pytest.mark.timeout(1800)
@pytest.mark.thorough
@pytest.mark.slow(seconds=10)
def test_nothing_is_lost_or_repeated_while_slices_come_and_go(tmp_path: Path, full_length: bool) -> None:
    """At full length with all that is killed above; otherwise on the inline engine, for some seconds."""
    report = Chaos(
        tmp_path,
        engine="spark" if full_length else "inline",
        seconds=300 if full_length else 6,
        every_seconds=15 if full_length else 3,
        events_per_second=10_000 if full_length else 4_000,
        subscriptions=200,
        seed=20110704,
        say=lambda line: None,
        change_slices_every_seconds=5 if full_length else 0.5,
    ).run()
    assert (report.lost, report.duplicated, report.foreign) == (0, 0, 0), report
    assert report.deliveries > 0
    assert min(report.changes["added"], report.changes["removed"]) > 0, report


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default="chaos")
@click.option("--engine", type=click.Choice(["spark", "inline"]), default="spark")
@click.option("--seconds", default=600.0)
@click.option("--every", default=15.0, help="Seconds between two kills.")
@click.option("--rate", default=20_000, help="Events a second.")
@click.option("--subscriptions", default=200)
@click.option("--change-slices", type=float, help="Seconds between two changes of the slices; none without.")
@click.option("--seed", default=20130629)
def main(
    directory: Path,
    engine: str,
    seconds: float,
    every: float,
    rate: int,
    subscriptions: int,
    change_slices: float | None,
    seed: int,
) -> None:
    directory.mkdir(parents=True)
    report = Chaos(
        directory.absolute(),
        engine=engine,
        seconds=seconds,
        every_seconds=every,
        events_per_second=rate,
        subscriptions=subscriptions,
        seed=seed,
        say=click.echo,
        change_slices_every_seconds=change_slices,
    ).run()
    click.echo(str(report))
    raise SystemExit(bool(report.lost or report.duplicated or report.foreign))


if __name__ == "__main__":
    main()
