"""The file log: the publication log in files of one directory.

FileLog          appends, one `fdatasync` per group of publications
GroupCommitter   gathers publications into groups on the event loop
DiskThread       writes small groups without the GIL
FileLogReader    reads by offset, in any process
log_segment      draws the file format, and finds the end of a log after a crash
"""

from culver.log.files.file_log import FileLog as FileLog
from culver.log.files.file_log_reader import FileLogReader as FileLogReader
