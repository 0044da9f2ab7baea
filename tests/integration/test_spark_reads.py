"""Spark itself reads a site: columns, partitions, filters, errors in words, and a live filter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from culver.client import SyncClient
from support import spark_reads
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_reads_a_site_in_every_way(tmp_path: Path) -> None:
    site = FakeSite(gateway_settings())
    with site_in_thread(site) as url, SyncClient(url) as client:
        client.publish([{"n": n, "text": f"t{n}", "order": {"id": -n}} for n in range(100)])
        site.first_offset = 2
        command = [sys.executable, spark_reads.__file__, url, str(tmp_path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=200, env=os.environ, check=False
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["default"] == ["offset", "delivery_id", "received", "event"]
    assert found["row"] == {
        "offset": 3, "n": 3, "text": "t3", "order.id": -3, "order": {"id": -3}, "none": None
    }  # fmt: skip
    assert found["parts"] == 14
    assert found["filtered"] == list(range(91, 100))
    assert found["times"] == 0
    assert "option fliter: there is no such option; did you mean filter?" in found["option"]
    assert "expected an attribute name" in found["filter"]
    assert "column n: an event cannot hold the type DECIMAL(10,2)" in found["type"]
    assert "nobody" in found["subscription"]
    assert "begins at offset 2" in found["from"]
    assert found["live"] == [1000]
