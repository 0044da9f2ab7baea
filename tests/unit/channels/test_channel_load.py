import msgspec
import pytest
from hypothesis import given, strategies as st

from culver.channels.core.channel_load import (
    MOST_LISTED_CHANNELS,
    MOST_REPORTED_CHANNELS,
    ChannelTraffic,
    ChannelUse,
    ClientLoadReport,
    LoadWindow,
    ServerFigures,
    ServerLoad,
    report_of,
)


def _report(client: int, *uses: ChannelUse) -> ClientLoadReport:
    return ClientLoadReport(client, uses)


def test_a_client_names_its_busiest_channels_and_sums_up_the_rest() -> None:
    traffic = {b"c%d" % number: ChannelTraffic(1, 100, 0) for number in range(MOST_REPORTED_CHANNELS + 9)}
    traffic[b"busy"] = ChannelTraffic(2, 200, 6)
    report = report_of(7, traffic)
    assert len(report.channels) == MOST_REPORTED_CHANNELS
    assert report.channels[0] == ChannelUse(b"busy", 2, 200, 6)
    assert report.rest == ChannelUse(b"", 10, 1000, 0)


def test_a_window_averages_the_reports_of_all_clients() -> None:
    window = LoadWindow(server=1, now=0.0, seconds=4)
    for second in range(4):
        for client in range(3):
            window.add_report(_report(client, ChannelUse(b"c", 10, 640, 20)), now=second + 0.5)
    (channel,) = window.load(now=4.1).channels
    assert channel.channel == b"c"
    assert channel.publications == 30
    assert channel.publishers == 3
    assert channel.subscribers == 2
    assert channel.sent == 60
    assert channel.bytes_in == 640 * 3
    assert channel.bytes_out == pytest.approx(60 * (64 + 1 + 36 + 28))


def test_the_server_knows_its_subscribers_better_than_the_publishers() -> None:
    window = LoadWindow(server=1, now=0.0)
    window.add_report(_report(1, ChannelUse(b"c", 1, 10, 5)), now=0.5)
    window.add_subscribers({b"c": 9})
    assert window.load(now=1.0).channels[0].subscribers == 9


def test_old_seconds_and_the_unfinished_one_are_left_out() -> None:
    window = LoadWindow(server=1, now=0.0, seconds=2)
    window.add_report(_report(1, ChannelUse(b"old", 1, 10, 1)), now=0.5)
    window.add_report(_report(1, ChannelUse(b"new", 4, 10, 1)), now=3.5)
    assert window.busiest(now=3.9) == []
    assert window.busiest(now=4.2) == [b"new"]
    assert window.load(now=4.2).channels[0].publications == 2


def test_counters_of_the_server_become_rates() -> None:
    window = LoadWindow(server=1, now=0.0)
    window.add_figures(ServerFigures(1000, 100, 1.0, clients=5), now=0.0)
    window.add_figures(
        ServerFigures(5000, 300, 1.5, 6, output_buffer_bytes=800, waiting_clients=2, probe_seconds=0.02),
        now=2.0,
    )
    load = window.load(now=2.0)
    assert (load.outgoing_bytes, load.incoming_bytes, load.cpu, load.clients) == (2000, 100, 0.25, 6)
    assert (load.output_buffer_bytes, load.buffer_growth, load.waiting_clients) == (800, 400, 2)
    assert load.probe_seconds == 0.01


def test_one_slow_probe_is_not_the_latency_of_a_server() -> None:
    window = LoadWindow(server=1, now=0.0)
    for second, probe in enumerate([0.001, 0.001, 0.9, 0.002, 0.001]):
        window.add_figures(ServerFigures(second, 0, 0.0, 1, probe_seconds=probe), now=float(second))
    assert window.load(now=5.0).probe_seconds == 0.001


def test_a_server_that_was_started_again_counts_from_its_new_start() -> None:
    window = LoadWindow(server=1, now=0.0)
    window.add_figures(ServerFigures(10_000, 0, 9.0, 1), now=0.0)
    window.add_figures(ServerFigures(100, 0, 0.1, 1), now=1.0)
    assert window.load(now=1.0).outgoing_bytes == 0
    window.add_figures(ServerFigures(300, 0, 0.1, 1), now=2.0)
    assert window.load(now=2.0).outgoing_bytes == 200


def test_memory_is_bounded_whatever_clients_report() -> None:
    window = LoadWindow(server=1, now=0.0, seconds=2)
    for client in range(100):
        uses = [ChannelUse(b"%d-%d" % (client, number), 1, 1, 1) for number in range(400)]
        window.add_report(_report(client, *uses), now=client / 10)
    assert len(window._seconds) <= 3
    assert all(len(second.channels) <= 8192 for second in window._seconds)
    assert len(window.load(now=10.0).channels) == MOST_LISTED_CHANNELS


def test_figures_that_cannot_be_are_left_out() -> None:
    window = LoadWindow(server=1, now=0.0)
    window.add_report(_report(1, ChannelUse(b"c", -5, 10, 1), ChannelUse(b"d", 1, 10, -1)), now=0.5)
    assert window.load(now=1.0).channels == ()


def test_a_report_and_a_load_survive_their_journey() -> None:
    report = _report(7, ChannelUse(b"\xff", 1, 2, 3))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=ClientLoadReport) == report
    window = LoadWindow(server=1, now=0.0)
    window.add_report(report, now=0.5)
    load = window.load(now=1.0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(load), type=ServerLoad) == load


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(0, 9), st.integers(0, 100), st.integers(0, 100)), max_size=60
    )
)
def test_a_window_loses_nothing_that_was_reported_within_it(
    reports: list[tuple[float, int, int, int]],
) -> None:
    window, now = LoadWindow(server=1, now=0.0, seconds=1000), 0.0
    for step, channel, publications, receivers in reports:
        now += step
        window.add_report(_report(1, ChannelUse(b"%d" % channel, publications, 10, receivers)), now)
    load = window.load(now + 1)
    assert sum(c.publications * load.seconds for c in load.channels) == pytest.approx(
        sum(report[2] for report in reports)
    )
    assert sum(c.sent * load.seconds for c in load.channels) == pytest.approx(
        sum(report[3] for report in reports)
    )


def test_observed_messages_have_no_envelope_and_are_no_reports() -> None:
    window = LoadWindow(1, now=0.0)
    window.add_observed([ChannelUse(b"c", 10, 1_000, 30)], now=0.5)
    window.add_report(_report(1, ChannelUse(b"d", 10, 1_000, 30)), now=0.5)
    loads = {load.channel: load for load in window.load(now=1.5).channels}
    assert loads[b"c"].bytes_out == (100 + 1 + 36) * 30
    assert loads[b"d"].bytes_out == (100 + 1 + 36 + 28) * 30
    assert (loads[b"c"].foreign, loads[b"d"].foreign) == (10, 0)
    assert (window.reported, window.reported_bytes) == (10, loads[b"d"].bytes_out)


def test_reported_totals_have_the_rest_and_what_was_published_besides() -> None:
    window = LoadWindow(1, now=0.0)
    report = ClientLoadReport(1, (ChannelUse(b"c", 10, 640, 20),), ChannelUse(b"", 5, 50, 5), besides=3)
    window.add_report(report, now=0.5)
    window.add_report(ClientLoadReport(2, (), besides=-7), now=0.5)
    assert window.reported == 18
    assert [load.channel for load in window.load(now=1.5).channels] == [b"c"]
