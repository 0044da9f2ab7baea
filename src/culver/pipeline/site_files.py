"""Paths of the files that the pipeline reads and writes. Imports nothing heavy: every process of Spark needs it."""

from pathlib import Path


class SiteFiles:
    """All paths lie in the data directory. `culver.plugins` opens the log by its address."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "log"
        self.log_address = self.log.absolute().as_uri()
        self.index = data_dir / "index"
        self.registry = data_dir / "registry.db"
        self.delivery = data_dir / "delivery"
        self.notifications = self.delivery / "notifications"
        self.partials = data_dir / "partials"
        self.head = data_dir / "head"
        self.load = data_dir / "load.json"
        self.publishers = data_dir / "publishers"
        self.reserve = data_dir / "reserve"
        self.clock = data_dir / "clock"
        self.spark = data_dir / "spark"
