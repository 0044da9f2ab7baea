"""`culver top`: the text of a frame, and the command against a gateway."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from culver.cli import main
from culver.cli.site_text import WIDTH, amount, duration, moment, percent, size, top_frame
from culver.control.site_observation import (
    GatewayInfo,
    IndexScheme,
    PlacementInfo,
    SiteObservation,
    SiteRates,
    rates_between,
)
from culver.pipeline.engine_totals import (
    SchemeTotals,
)
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.observations import observation
from support.service import free_port
from support.site_thread import site_in_thread

FRAME = """\
Culver at http://127.0.0.1:8080                     spark: running, up 1 h 0 min
Spark's web interface: http://127.0.0.1:4040
placement hashed: as the setting pipeline.placement says

     PUBLISHED/S       MATCHED/S NOTIFICATIONS/S          SENT/S   SUBSCRIPTIONS
          1.00 k             500          6.00 k              50           1,500

OPERATOR            EVENTS/S     PAIRS/S        BUSY   PER EVENT       QUEUE
AP  read, route       1.00 k                   5.0 %       50 us       3,000
M   match             1.00 k      6.00 k      20.0 %      200 us
EP  group, join       1.00 k      6.00 k      15.0 %      150 us          40
write             1.50 files   3.00 MB/s       5.0 %

SLICE     EVENTS     PAIRS     REGISTRATIONS      SIZE      TIME
0         50.0 %    25.0 %        500 33.3 %   4.00 kB    25.0 % ####
1         50.0 %    75.0 %      1,000 66.7 %   8.00 kB    75.0 % ###########

batches: 1.50/s, p50 20 events in 20 ms, p99 30 in 30 ms
         last one: addBatch 200 ms, walCommit 50 ms

waiting: 1 to be stored, 2 for the index, 3,000 to be matched,
         40 matched behind a missing file (in 1), 50,000 in mailboxes"""


def test_frame_reads_like_this() -> None:
    view = rates_between(observation(3_600.0, 1), observation(3_602.0, 2))
    assert top_frame(view, "http://127.0.0.1:8080") == FRAME


SCHEMES = """write             1.50 files   3.00 MB/s       5.0 %

SCHEME           SUBSCRIPTIONS       PAIRS/S          BUSY
columnar                     0        4.00 k        15.0 %
counting                 1,500        2.00 k         5.0 %

SLICE"""


def test_several_schemes_have_lines_of_their_own() -> None:
    def seen(uptime: float, n: int) -> SiteObservation:
        done = (SchemeTotals("columnar", 8_000 * n, 0.3 * n), SchemeTotals("counting", 4_000 * n, 0.1 * n))
        plain = observation(uptime, n)
        held = (IndexScheme("counting", 1_500, 12_000),)
        return replace(plain, pipeline=replace(plain.pipeline, schemes=done), schemes=held)

    text = top_frame(rates_between(seen(3_600.0, 1), seen(3_602.0, 2)), "http://127.0.0.1:8080")
    assert SCHEMES in text
    assert max(map(len, text.split("\n"))) <= WIDTH


def wide() -> SiteRates:
    view = rates_between(observation(10.0, 1), observation(12.0, 2))
    slices = tuple(replace(view.slices[0], slice=number) for number in range(40))
    reason = PlacementInfo("hashed", 40, "hashed: " + "because " * 30)
    return replace(view, state="failed: " + "some words of Java " * 10, slices=slices, placement=reason)


def test_gateways_are_shown_where_there_are_several() -> None:
    gateways = (GatewayInfo(0, 8080, "running", 1_200, 7), GatewayInfo(1, 8081, "starting again", 1_199, 0))
    view = rates_between(observation(10.0, 1), replace(observation(12.0, 2), gateways=gateways))
    assert top_frame(view, "http://127.0.0.1:8080").splitlines()[-3:] == [
        "GATEWAY             PORT   SUBSCRIPTIONS        SESSIONS  STATE",
        "0                   8080           1,200               7  running",
        "1                   8081           1,199               0  starting again",
    ]
    alone = rates_between(observation(10.0, 1), replace(observation(12.0, 2), gateways=gateways[:1]))
    assert "GATEWAY" not in top_frame(alone, "http://127.0.0.1:8080")


def test_frame_is_never_wider_than_the_narrowest_terminal() -> None:
    lines = top_frame(wide(), "http://a-site-with-a-long-name.example.org:8080").splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "and 24 more; --json has them all" in lines


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (amount(0), "0"), (amount(7.254), "7.25"), (amount(980), "980"), (amount(999.9), "1.00 k"),
        (amount(12_345), "12.3 k"), (amount(1_500_000), "1.50 M"), (amount(2.5e13), "25000 G"),
        (size(512), "512 B"), (size(1_900_000), "1.90 MB"), (percent(0.123), "12.3 %"), (percent(20), "2000 %"),
        (moment(3.5e-7), "350 ns"), (moment(2.14e-6), "2.1 us"), (moment(0.035), "35 ms"), (moment(1.23), "1.2 s"),
        (duration(12.9), "12 s"), (duration(3 * 60), "3 min"), (duration(4 * 3600 + 600), "4 h 10 min"),
        (duration(12.2 * 86400), "12 d 4 h"),
    ],
)  # fmt: skip
def test_figures_are_short(shown: str, text: str) -> None:
    assert shown == text


# --- the command ----------------------------------------------------------------------------------------


def test_once_prints_one_plain_frame(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread(FakeSite(gateway_settings())) as url:
        assert main(["top", "--once", "--interval", "0.05", "--url", url]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Culver at {url}")
    assert "fake: running" in out
    assert "\x1b" not in out


def test_json_is_one_object_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread(FakeSite(gateway_settings())) as url:
        assert main(["top", "--once", "--json", "--interval", "0.05", "--url", url]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["url"], document["engine"], document["published_per_second"]) == (url, "fake", 0)
    assert [each["name"] for each in document["operators"]] == ["ap", "m", "ep"]


def test_where_no_site_answers_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "is a site running there?" in capsys.readouterr().err


def test_on_a_terminal_the_view_is_repainted_and_ctrl_c_gives_the_screen_back() -> None:
    with site_in_thread(FakeSite(gateway_settings())) as url:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "culver", "top", "--interval", "0.05", "--url", url]
        with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            shown = b""
            deadline = time.monotonic() + 30
            while shown.count(b"Culver at") < 2 and time.monotonic() < deadline:
                shown += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            while chunk := _read(ours):
                shown += chunk
            assert process.wait(10) == 130
            assert process.stderr is not None
            assert process.stderr.read().strip() == b""
        os.close(ours)
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
    assert b"\x1b[H" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""
