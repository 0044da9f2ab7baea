"""`culver cluster`: starts and stops a standalone Spark cluster on this machine, to try one out."""

from pathlib import Path

import click

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


@click.group()
def cluster() -> None:
    """Start and stop a standalone Spark cluster on this machine.

    The cluster is a Master and some Workers, which listen on the loopback address: enough to see what
    `culver serve --spark-master` does on a real cluster. It needs Java 17 or newer.

    \b
    Examples:
      culver cluster up --port 7077
      culver serve --spark-master spark://127.0.0.1:7077
      culver cluster down
    """


@cluster.command()
@_directory
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Workers to start.",
)
@click.option(
    "--cores",
    metavar="N",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Cores of a Worker.",
)
@click.option(
    "--memory", metavar="SIZE", default="1g", show_default=True, help="Memory of a Worker for executors."
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the Master.  [default: any free one]",
)
def up(directory: Path, workers: int, cores: int, memory: str, port: int) -> None:
    """Start a Master and Workers; they run until `culver cluster down`.

    \b
    Examples:
      culver cluster up
      culver cluster up --workers 3 --cores 2 --memory 2g --port 7077
    """
    with StartupProgress() as startup:
        state = StandaloneCluster(directory).up(workers, cores, memory, port, startup.progress)
        seconds = startup.finish()
    option = "" if directory == Path("culver-cluster") else f" --dir {directory}"
    click.echo(
        f"A Spark cluster is up on {state.master_url} ({counted(workers, 'Worker')}, {seconds:.1f} s)\n\n"
        f"Start a site on it with:\n  {invocation()} serve --spark-master {state.master_url}\n"
        f"and stop the cluster with:\n  {invocation()} cluster down{option}"
    )


@cluster.command()
@_directory
def down(directory: Path) -> None:
    """Stop exactly the processes that `culver cluster up` started.

    \b
    Example:
      culver cluster down
    """
    found = StandaloneCluster(directory)
    if found.state() is None:
        click.echo(f"No cluster is up in {directory}.")
        return
    stopped = found.down()
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
        click.echo(
            f"  {process.role:<10} process {process.pid:<8} {'running' if process.running else 'ended'}"
        )
    return 0 if len(state.running) == len(state.processes) else 1
