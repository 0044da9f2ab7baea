"""`culver bench fanout` runs whole: a site, NATS and Valkey in turn, with receivers that count every delivery."""

import json
import subprocess
import sys

import pytest

from culver.bench.fanout.rival_servers import RIVALS, rival_program

pytestmark = pytest.mark.thorough

_MEMBERS = {
    "fanout": {"deliveries_per_second", "server_us_per_delivery", "bytes"},
    "filters live": {"p50_ms", "p99_ms", "send_late_p99_ms", "bytes"},
    "filters durable": {"p50_ms", "p99_ms", "send_late_p99_ms", "bytes"},
    "publications": {"publications_per_second"},
    "publications wide": {"publications_per_second"},
    "set": {"deliveries_per_second"},
}
_LABELS = {"system", "what", "protocol", "version"}


@pytest.mark.slow(seconds=45)
@pytest.mark.parametrize("wire", ["json", "msgpack"])
def test_a_quick_run_measures_every_system_that_is_installed_in_every_row(
    wire: str, full_length: bool
) -> None:
    if wire == "json" and not full_length:
        pytest.skip("the same again in JSON: run with --full")
    command = [sys.executable, "-m", "culver", "bench", "fanout", "--quick", "--wire", wire, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    records = {(record["what"], record["system"]): record for record in json.loads(done.stdout)["results"]}
    installed = [system for system in RIVALS if rival_program(system)]
    expected = {(what, "culver") for what in _MEMBERS}
    expected |= {(what, system) for what in ("fanout", "filters live") for system in installed}
    if "nats" in installed:
        expected |= {("publications", "nats"), ("publications wide", "nats")}
    assert set(records) == expected
    for (what, _), record in records.items():
        measured = {name for name, value in record.items() if value is not None} - _LABELS
        assert measured == _MEMBERS[what]
        assert all(record[name] > 0 for name in measured)
    for system in set(RIVALS) - set(installed):
        assert f"{system} is left out" in done.stderr
