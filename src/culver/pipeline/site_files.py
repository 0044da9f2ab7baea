"""Paths of the files that the pipeline reads and writes. Imports nothing heavy: every process of Spark needs it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """All paths lie in the data directory."""

    data_dir: Path

    @property
    def log(self) -> Path:
        return self.data_dir / "log"

    @property
    def log_address(self) -> str:
        """The address under which `culver.plugins` opens the log."""
        return self.log.absolute().as_uri()

    @property
    def index(self) -> Path:
        return self.data_dir / "index"

    @property
    def registry(self) -> Path:
        return self.data_dir / "registry.db"

    @property
    def delivery(self) -> Path:
        return self.data_dir / "delivery"

    @property
    def notifications(self) -> Path:
        return self.delivery / "notifications"

    @property
    def partials(self) -> Path:
        return self.data_dir / "partials"

    @property
    def head(self) -> Path:
        return self.data_dir / "head"

    @property
    def load(self) -> Path:
        return self.data_dir / "load.json"

    @property
    def spark(self) -> Path:
        return self.data_dir / "spark"
