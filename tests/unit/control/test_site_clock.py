"""The site's clock against a system's clock that is set, and its file against damage."""

import logging
import random
from pathlib import Path

import pytest

from culver.control.site_clock import ClockFile, SiteClock

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NOW = 20_000 * DAY


class Clocks:
    """A system's clock that can be set, and the time that really passes."""

    def __init__(self) -> None:
        self.system_us = NOW
        self.elapsed_us = 5 * DAY
        self.site = SiteClock(NOW, lambda: self.system_us, lambda: self.elapsed_us)

    def pass_time(self, duration_us: int) -> None:
        """Housekeeping looks at the clock every second, or ten times in a long while."""
        steps = min(max(duration_us // SECOND, 1), 2_000)
        for _ in range(steps):
            self.system_us += duration_us // steps
            self.elapsed_us += duration_us // steps
            self.site.follow()


def test_the_clock_agrees_with_a_system_that_nobody_sets() -> None:
    clocks = Clocks()
    clocks.pass_time(HOUR // 2)
    assert clocks.site.now_us() == clocks.system_us
    assert clocks.site.ahead_us() == 0


def test_a_jump_ahead_counts_no_faster_than_at_double_speed_until_it_is_caught_up_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = Clocks()
    clocks.system_us += HOUR
    with caplog.at_level(logging.WARNING):
        clocks.site.follow()
        assert clocks.site.now_us() == NOW
        clocks.pass_time(600 * SECOND)
        assert clocks.site.now_us() == NOW + 1200 * SECOND
        assert clocks.site.ahead_us() == 600 * SECOND - HOUR
        clocks.pass_time(HOUR)
    assert abs(clocks.site.now_us() - clocks.system_us) <= 4 * SECOND
    assert caplog.text.count("3600 s ahead of the site's") == 1


def test_a_jump_back_stops_nothing_and_time_never_runs_backwards() -> None:
    clocks = Clocks()
    clocks.system_us -= HOUR
    clocks.site.follow()
    assert clocks.site.now_us() == NOW
    clocks.pass_time(600 * SECOND)
    assert clocks.site.now_us() == NOW + 300 * SECOND
    clocks.pass_time(2 * HOUR)
    assert abs(clocks.site.now_us() - clocks.system_us) <= 4 * SECOND


def test_whatever_the_system_shows_a_time_takes_half_to_twice_as_long() -> None:
    generator = random.Random(4)
    for _ in range(50):
        clocks = Clocks()
        for _ in range(20):
            clocks.system_us += generator.choice([-1, 1]) * generator.randrange(400 * DAY)
            before, passed = clocks.site.now_us(), generator.randrange(SECOND, 200 * SECOND)
            clocks.pass_time(passed)
            assert passed // 2 - SECOND <= clocks.site.now_us() - before <= 2 * passed + SECOND


@pytest.mark.parametrize(
    ("pause_us", "counted_us"),
    [(0, 0), (HOUR // 2, HOUR // 2), (HOUR, HOUR), (30 * DAY, HOUR), (10_000 * DAY, HOUR), (-DAY, 0)],
)
def test_a_start_believes_in_a_pause_of_up_to_an_hour(pause_us: int, counted_us: int) -> None:
    clock = SiteClock.after(NOW, lambda: NOW + pause_us)
    assert 0 <= clock.now_us() - NOW - counted_us < 60 * SECOND


def test_the_first_start_believes_the_system() -> None:
    assert 0 <= SiteClock.after(None, lambda: NOW).now_us() - NOW < 60 * SECOND


def test_the_file_tells_the_next_start_the_time_unless_it_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "clock"
    assert ClockFile(path).read() is None
    file = ClockFile(path)
    assert file.is_due(NOW)
    file.write(NOW)
    assert not file.is_due(NOW + SECOND)
    assert file.is_due(NOW + HOUR)
    assert ClockFile(path).read() == NOW
    assert not caplog.text
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        assert ClockFile(path).read() in (None, NOW)
    assert str(path) in caplog.text
