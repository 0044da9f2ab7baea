"""The publication log: every acknowledged event, by offset. `culver.plugins` opens logs and readers by address."""

from culver.log.followed_log import FollowedLog
from culver.log.publication_log import (
    CommitObserver,
    CommitReceipt,
    Committer,
    LogReader,
    PublicationLog,
    ReadableLog,
)

__all__ = [
    "CommitObserver",
    "CommitReceipt",
    "Committer",
    "FollowedLog",
    "LogReader",
    "PublicationLog",
    "ReadableLog",
]
