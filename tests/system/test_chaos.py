"""Something is killed every few seconds, on a real standalone cluster: nothing lost, nothing twice.

By hand, for as long as wanted:

    PYTHONPATH=src:tests python tests/system/test_chaos.py --seconds 600 --rate 20000 --every 15
"""

from pathlib import Path

import click
import pytest

from support.chaos import KINDS, Chaos


@pytest.mark.spark
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_repeated_while_processes_of_a_cluster_are_killed(
    tmp_path: Path, full_length: bool
) -> None:
    report = Chaos(
        tmp_path,
        seconds=600 if full_length else 8,
        every_seconds=15 if full_length else 2,
        events_per_second=20_000 if full_length else 2_000,
        subscriptions=200 if full_length else 50,
        seed=20130629,
        say=lambda line: None,
    ).run()
    assert (report.lost, report.duplicated, report.foreign) == (0, 0, 0), report
    assert report.deliveries > 0
    assert sum(report.kills.values()) >= (len(KINDS) if full_length else 2), report


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default="chaos")
@click.option("--seconds", default=600.0)
@click.option("--every", default=15.0, help="Seconds between two kills.")
@click.option("--rate", default=20_000, help="Events a second.")
@click.option("--subscriptions", default=200)
@click.option("--seed", default=20130629)
def main(directory: Path, seconds: float, every: float, rate: int, subscriptions: int, seed: int) -> None:
    directory.mkdir(parents=True)
    report = Chaos(
        directory.absolute(),
        seconds=seconds,
        every_seconds=every,
        events_per_second=rate,
        subscriptions=subscriptions,
        seed=seed,
        say=click.echo,
    ).run()
    click.echo(str(report))
    raise SystemExit(bool(report.lost or report.duplicated or report.foreign))


if __name__ == "__main__":
    main()
