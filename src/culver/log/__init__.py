"""The publication log: every acknowledged event, by offset. `culver.plugins` opens logs and readers by address."""

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
)
