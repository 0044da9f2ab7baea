"""The publication log: every acknowledged event, by offset. `culver.plugins` opens logs and readers by address.

A reader finds damage and where it ends, and raises `StorageCorrupt`; `read_intact` goes on behind it, and the
pipeline announces what is lost."""

from culver.log.numbers import (
    MemoryContent as MemoryContent,
    PublicationMemory as PublicationMemory,
    PublishersFile as PublishersFile,
    StoredPart as StoredPart,
)
from culver.log.publication_log import (
    CommitObserver as CommitObserver,
    CommitReceipt as CommitReceipt,
    Committer as Committer,
    DamagedEvents as DamagedEvents,
    EventSource as EventSource,
    FollowedLog as FollowedLog,
    LogReader as LogReader,
    PublicationLog as PublicationLog,
    ReadableLog as ReadableLog,
    read_intact as read_intact,
)


def load_kernels() -> None:
    """Load the kernels of logs, or compile them where they never were. Harmless to call again."""
    from culver.log.files import disk_thread

    disk_thread.load()
