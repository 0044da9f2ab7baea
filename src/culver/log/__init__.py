"""The publication log: every acknowledged event, on disk, by offset."""

from culver.log.file_log import FileLog, FileLogReader
from culver.log.followed_log import FollowedLog
from culver.log.group_committer import GroupCommitter
from culver.log.publication_log import PublicationLog, ReadableLog, Receipt

__all__ = [
    "FileLog",
    "FileLogReader",
    "FollowedLog",
    "GroupCommitter",
    "PublicationLog",
    "ReadableLog",
    "Receipt",
]
