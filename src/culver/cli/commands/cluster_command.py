"""`culver cluster`: starts and stops a standalone Spark cluster, on this machine or on several."""

import os
from pathlib import Path

import click

from culver.cli.exposure_warnings import warnings_of_cluster
from culver.cli.shell_hints import invocation
from culver.cli.startup_progress import StartupProgress
from culver.errors import counted
from culver.pipeline import StandaloneCluster

_directory = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("culver-cluster"),
    show_default=True,
    help="Where the cluster keeps its logs and remembers its processes.",
)


_memory = click.option(
    "--memory", metavar="SIZE", default="1g", show_default=True, help="Memory of a Worker for executors."
)


@click.group()
def cluster() -> None:
    """Start and stop a standalone Spark cluster.

    A cluster is a Master and some Workers. Without --host they listen on the loopback address: enough to see on one
    machine what `culver serve --spark-master` does on a real cluster. It needs Java 17 or newer.

    \b
    Examples, on one machine:
      culver cluster up --port 7077
      culver serve --spark-master spark://127.0.0.1:7077
      culver cluster down

    \b
    Examples, on several:
      head$  culver cluster up --host 10.0.0.1 --port 7077 --workers 0
      other$ culver cluster join spark://10.0.0.1:7077
    """


@cluster.command()
@_directory
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(0, 64),
    default=2,
    show_default=True,
    help="Workers to start; 0 leaves that to `culver cluster join`.",
)
@click.option(
    "--cores",
    metavar="N",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Cores of a Worker.",
)
@_memory
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address of this machine where Master and Workers listen.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the Master.  [default: any free one]",
)
def up(directory: Path, workers: int, cores: int, memory: str, host: str, port: int) -> None:
    """Start a Master and Workers; they run until `culver cluster down`.

    \b
    Examples:
      culver cluster up
      culver cluster up --workers 3 --cores 2 --memory 2g --port 7077
      culver cluster up --host 10.0.0.1 --port 7077 --workers 0
    """
    _warn(host)
    with StartupProgress() as startup:
        state = StandaloneCluster(directory).up(workers, cores, memory, port, startup.progress, host=host)
        seconds = startup.finish()
    click.echo(
        f"A Spark cluster is up on {state.master_url} ({counted(workers, 'Worker')}, {seconds:.1f} s)\n\n"
        f"Start a site on it with:\n  {invocation()} serve --spark-master {state.master_url}\n"
        f"add a Worker, here or on another machine, with:\n  {invocation()} cluster join {state.master_url}\n"
        f"and stop the cluster with:\n  {invocation()} cluster down{_option(directory)}"
    )


@cluster.command()
@click.argument("master", metavar="MASTER")
@_directory
@click.option(
    "--cores",
    metavar="N",
    type=click.IntRange(1, 1024),
    help="Cores of the Worker.  [default: those of this machine]",
)
@_memory
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address of this machine where the Worker listens.  [default: the one from which it reaches the Master]",
)
def join(directory: Path, master: str, cores: int | None, memory: str, host: str | None) -> None:
    """Start a Worker for a Master here or elsewhere; it runs until `culver cluster down`.

    MASTER is the address that `culver cluster up` has printed. Several Workers on one machine share a directory.

    \b
    Examples:
      culver cluster join spark://10.0.0.1:7077
      culver cluster join spark://10.0.0.1:7077 --host 10.0.0.2 --cores 4 --memory 4g
    """
    cores = cores or len(os.sched_getaffinity(0))
    with StartupProgress() as startup:
        state = StandaloneCluster(directory).join(master, cores, memory, startup.progress, host=host)
        seconds = startup.finish()
    role = state.processes[-1].role
    _warn(state.host_of(role))
    click.echo(
        f"{role} on {state.host_of(role)} has joined {master} ({counted(cores, 'core')}, {seconds:.1f} s)\n\n"
        f"Stop the processes of this machine with:\n  {invocation()} cluster down{_option(directory)}"
    )


@cluster.command()
@_directory
def down(directory: Path) -> None:
    """Stop exactly the processes that `up` and `join` started here.

    \b
    Example:
      culver cluster down
    """
    found = StandaloneCluster(directory)
    if found.state() is None:
        click.echo(f"No cluster is up in {directory}.")
        return
    stopped = found.down(lambda text: click.echo(text, err=True))
    for process in stopped:
        click.echo(f"stopped {process.role} (process {process.pid})")
    if not stopped:
        click.echo("All its processes had ended already.")


@cluster.command()
@_directory
def status(directory: Path) -> int:
    """Show the cluster's processes; exits with 1 unless all of them run.

    \b
    Example:
      culver cluster status
    """
    state = StandaloneCluster(directory).state()
    if state is None:
        click.echo(f"No cluster is up in {directory}; `{invocation()} cluster up` starts one.")
        return 1
    click.echo(state.master_url)
    for process in state.processes:
        condition = "running" if process.running else "ended"
        click.echo(
            f"  {process.role:<10} {state.host_of(process.role):<15} process {process.pid:<8} {condition}"
        )
    return 0 if len(state.running) == len(state.processes) else 1


def _option(directory: Path) -> str:
    return "" if directory == Path("culver-cluster") else f" --dir {directory}"


def _warn(host: str) -> None:
    for warning in warnings_of_cluster(host):
        click.echo(f"culver: warning: {warning}", err=True)
