"""The account of numbered messages: it finds every loss, copy and disorder that the journals show."""

from pathlib import Path

import pytest

from culver.bench.channels.analyser_cost import read_use
from culver.bench.channels.clients.message_journal import (
    REPORT_SECONDS,
    STEADY_SECONDS,
    UNTOLD_SECONDS,
    JournalKind,
    JournalWriter,
    draw_account,
)

PUBLISHER = 1 << 60
CHANNEL = 3


class Journals:
    """A publisher that has sent the numbers 1 to 9 while its subscriber was steady, and ended in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = monkeypatch
        self.publishers: list[Path] = []
        self.subscribers: list[Path] = []

    def at(self, seconds: float) -> None:
        self._patch.setattr("culver.bench.channels.clients.message_journal.time.monotonic", lambda: seconds)

    def publisher(self, *, killed_at: float | None = None) -> None:
        path = self._folder / "publisher"
        self.publishers.append(path)
        journal = JournalWriter(path)
        for number in range(1, 10):
            sent_at = STEADY_SECONDS + number
            journal.add(JournalKind.SENT, CHANNEL, PUBLISHER, number, number, sent_at, sent_at + 0.1)
        self.at(killed_at or 100.0)
        journal.flush()
        journal.close(orderly=killed_at is None)

    def subscriber(
        self,
        *received: int,
        gaps: tuple[tuple[int, int], ...] = (),
        until: float = 100.0,
        joined: float = 0.0,
    ) -> None:
        path = self._folder / f"subscriber-{len(self.subscribers)}"
        self.subscribers.append(path)
        journal = JournalWriter(path)
        journal.add(JournalKind.JOINED, CHANNEL, began=joined)
        for number in received:
            journal.add(JournalKind.RECEIVED, CHANNEL, PUBLISHER, number, number)
        for first, last in gaps:
            journal.add(JournalKind.LOST, CHANNEL, PUBLISHER, first, last)
        self.at(until)
        journal.close()


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journals:
    return Journals(tmp_path, monkeypatch)


def test_everything_received_in_order_leaves_nothing_to_report(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber(*range(1, 10))
    journals.subscriber(*range(1, 10))
    account = draw_account(journals.publishers, journals.subscribers)
    assert (account.published, account.due) == (9, 18)
    assert (account.lost, account.duplicated, account.out_of_order) == (0, 0, 0)


def test_a_missing_message_is_lost_in_silence_unless_a_gap_tells_of_it(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber(1, 2, 3, 7, 8, gaps=((4, 5),))
    account = draw_account(journals.publishers, journals.subscribers)
    assert (account.lost, account.reported, account.silently_lost) == (4, 2, 2)


def test_a_subscriber_that_got_nothing_has_lost_everything(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber()
    assert draw_account(journals.publishers, journals.subscribers).silently_lost == 9


def test_copies_and_disorder_are_counted_apart(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber(1, 2, 2, 4, 3, 5, 6, 7, 1, 8, 9)
    account = draw_account(journals.publishers, journals.subscribers)
    assert (account.lost, account.duplicated, account.out_of_order) == (0, 2, 1)


def test_a_gap_of_what_was_received_is_wrong(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber(*range(1, 10), gaps=((8, 9),))
    assert draw_account(journals.publishers, journals.subscribers).wrongly_reported == 2


def test_what_was_sent_before_a_subscriber_is_steady_or_shortly_before_its_end_is_not_due(
    journals: Journals,
) -> None:
    journals.publisher()
    journals.subscriber(joined=4.5, until=STEADY_SECONDS + 7.5 + REPORT_SECONDS)
    account = draw_account(journals.publishers, journals.subscribers)
    assert (account.due, account.lost) == (3, 3)


def test_the_last_messages_of_a_killed_publisher_are_not_due(journals: Journals) -> None:
    journals.publisher(killed_at=STEADY_SECONDS + 6.5 + UNTOLD_SECONDS)
    journals.subscriber(1, 2, 3, 4, 5)
    account = draw_account(journals.publishers, journals.subscribers)
    assert (account.due, account.lost) == (6, 1)


def test_a_torn_record_at_the_end_of_a_journal_does_not_count(journals: Journals) -> None:
    journals.publisher()
    journals.subscriber(*range(1, 10))
    with journals.subscribers[0].open("ab") as file:
        file.write(b"torn")
    assert draw_account(journals.publishers, journals.subscribers).lost == 0


def test_a_command_takes_its_own_time_and_its_part_of_reading_and_writing() -> None:
    before = read_use(
        b"# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:0.75\r\nused_cpu_sys_children:9.0\r\n"
        b"# Commandstats\r\ncmdstat_publish:calls=10,usec=50,usec_per_call=5.00\r\n"
    )
    after = read_use(
        b"# CPU\r\nused_cpu_sys:1.0\r\nused_cpu_user:2.0\r\n"
        b"# Commandstats\r\ncmdstat_publish:calls=1009,usec=1000050,usec_per_call=5.00\r\n"
        b"cmdstat_client|list:calls=1,usec=500000,usec_per_call=500000.00\r\n",
    )
    use = after.since(before)
    assert use.share("client|list") == pytest.approx((0.5 + 0.5 / 1_000) / 2.0)
    assert use.share("publish") + use.share("client|list") == pytest.approx(1.0)
    assert use.share("publish", 0) == use.share("info") == 0.0
