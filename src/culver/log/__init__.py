"""The publication log: every acknowledged event, on disk, by offset."""

from culver.log.file_log import FileLog, FileLogReader
from culver.log.followed_log import FollowedLog
from culver.log.group_committer import GroupCommitter
from culver.log.publication_log import CommitReceipt, PublicationLog, ReadableLog

__all__ = [
    "CommitReceipt",
    "FileLog",
    "FileLogReader",
    "FollowedLog",
    "GroupCommitter",
    "PublicationLog",
    "ReadableLog",
]
