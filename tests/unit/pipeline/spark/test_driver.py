"""What a driver tells the site about its end."""

import pytest

from culver.pipeline.spark.driver import _reason

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
Traceback (most recent call last):
  File "ranges.py", line 74, in _read
culver.errors.StorageCorrupt: /data/log/00000000000000000100.log is damaged at byte 6888: a record fails its checksum.

Driver stacktrace:
"""
JAVA = """An error occurred while calling o42.start.
: java.net.ConnectException: Connection refused
\tat Master.java
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER, "/data/log/00000000000000000100.log is damaged at byte 6888: a record fails its checksum."),
        (JAVA, "java.net.ConnectException: Connection refused"),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("", "unknown error"),
    ],
)
def test_reason_is_the_line_that_names_what_is_wrong(text: str, reason: str) -> None:
    assert _reason(text) == reason
