"""One range of the log through the three operators, from the files of a site to its notifications.

This is the shell around the pure operators. The inline engine runs it in the site's process, Spark in its workers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from culver import matching
from culver.errors import NotFound
from culver.log.files import FileLogReader
from culver.log.log import PublicationLog
from culver.matching.index import Index
from culver.pipeline import grouping, operators
from culver.pipeline.grouping import MOST_EVENTS, Grouping
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications


def warm_up() -> None:
    """Load all that a range needs, so that the first event need not wait. Harmless to call again."""
    matching.warm_up()
    grouping.load()


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """Where a site keeps what the pipeline reads and writes; all below the data directory."""

    data_dir: Path

    @property
    def log(self) -> Path:
        return self.data_dir / "log"

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
    def head(self) -> Path:
        return self.data_dir / "head"

    @property
    def spark(self) -> Path:
        return self.data_dir / "spark"


class RangeProcessor:
    """Keeps the log and the last index open between ranges. Not thread-safe."""

    def __init__(
        self, index: Path, log: PublicationLog | FileLogReader, head: Callable[[], Head | None]
    ) -> None:
        """`head` is asked how far delivery is, and which index version there is; None: not known this instant."""
        self._directory = index
        self._log = log
        self._head = head
        self._index: Index | None = None
        self._grouping = Grouping()

    def process(self, start: int, end: int, index_version: int) -> Iterator[Notifications]:
        """Match what delivery does not have of `[start, end)`, block by block; nothing where nothing is left to do
        (a batch that is run again after a restart)."""
        head = self._head()
        if head is not None:
            start = max(start, head.frontier)
        while start < end:
            block_end = min(end, start + MOST_EVENTS)
            index = self._open_index(index_version)
            parts = operators.access_point(start, block_end, self._log.read(start, block_end))
            tiles = operators.match(index, start, parts)
            yield operators.exit_point(start, index, parts, tiles, self._grouping)
            start = block_end

    def _open_index(self, version: int) -> Index:
        if self._index is not None and self._index.version == version:
            return self._index
        try:
            index = Index.open(self._directory, version)
        except NotFound:
            # The newest version gives the same answer: registrations carry the positions between which they
            # are in effect, and one is dropped only when the frontier has passed its end. Its number may be
            # lower, where the index was rebuilt.
            head = self._head()
            if head is None or head.index_version == version:
                raise
            return self._open_index(head.index_version)
        if self._index is not None:
            self._index.close()
        self._index = index
        return index

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
