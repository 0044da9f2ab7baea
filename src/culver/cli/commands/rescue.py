"""`culver rescue`: saves what can still be read of a damaged registry."""

import shutil
from pathlib import Path

import click

from culver.config import load


@click.command()
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory of the log and the registry.  [default: culver-data]",
)
@click.option(
    "--config",
    metavar="FILE",
    envvar="CULVER_CONFIG",
    type=click.Path(path_type=Path),
    help="TOML file with the settings of the site.",
)
def rescue(data_dir: Path | None, config: Path | None) -> None:
    """Save what can be read of a damaged registry.

    Use it where a site refuses to start because registry.db is damaged, and there is no copy of the file. It keeps
    every subscription that can still be read, sets the damaged files aside as registry.db.damaged, and shows what is
    lost. The next start builds the index from what is left. Mailboxes stay as they are.

    \b
    Example:
      culver rescue --data-dir /var/lib/culver
    """
    from culver.pipeline import SiteFiles
    from culver.registry import rescue_registry
    from culver.site import site_lock

    settings = load(config, flags={"data_dir": data_dir})
    files = SiteFiles(settings.data_dir)
    with site_lock(settings.data_dir):
        rescued = rescue_registry(files.registry)
        shutil.rmtree(files.index, ignore_errors=True)
    for loss in rescued.losses:
        click.echo(loss)
    click.echo(
        f"kept {rescued.kept['registrations']} registrations and {rescued.kept['blocks']} blocks of sets; "
        f"the damaged file is {files.registry}.damaged"
    )
