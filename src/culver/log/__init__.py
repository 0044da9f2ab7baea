"""The publication log: every acknowledged event, by offset. `culver.plugins` opens logs and readers by address."""

from culver.log.followed_log import FollowedLog
from culver.log.publication_log import (
    CommitReceipt,
    Committer,
    LogReader,
    OnCommitted,
    OnCommitting,
    PublicationLog,
    ReadableLog,
)

__all__ = [
    "CommitReceipt",
    "Committer",
    "FollowedLog",
    "LogReader",
    "OnCommitted",
    "OnCommitting",
    "PublicationLog",
    "ReadableLog",
]
