"""The commands of `docs/backup.md`, as they are, on a real site."""

import re
import subprocess
from pathlib import Path

import pytest

from support.service import Service

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


def commands(heading: str) -> list[str]:
    """The commands of a part of the page that are not Culver's own."""
    found = re.search(
        rf"^## {heading}$.*?```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return [line for line in found[1].splitlines() if not line.startswith("culver ")]


def run(heading: str, directory: Path) -> None:
    for line in commands(heading):
        subprocess.run(["sh", "-c", line], cwd=directory, check=True)


def deliveries(service: Service) -> list[str]:
    """The ids of what waits for `alerts`."""
    answer = service.http.get("/v1/subscriptions/alerts/events", params={"wait": 0})
    return [item["delivery_id"] for item in answer.json()["items"]]


def acknowledge(service: Service, delivery: str) -> None:
    service.http.post("/v1/subscriptions/alerts/ack", json={"delivery_id": delivery}).raise_for_status()


def publish(service: Service, *prices: int) -> int:
    answer = service.http.post("/v1/events", json=[{"price": price} for price in prices])
    service.wait_until_delivered()
    return int(answer.json()["first_offset"])


def state(service: Service) -> tuple[int, int, list[str]]:
    """The end of the log, how many subscriptions there are, and what waits for `alerts`."""
    subscriptions = service.http.get("/v1/subscriptions").json()["subscriptions"]
    return service.status()["log_next_offset"], len(subscriptions), deliveries(service)


@pytest.mark.slow(seconds=6)
def test_a_restored_site_is_as_it_was_when_it_was_backed_up(tmp_path: Path) -> None:
    with Service(tmp_path / "culver-data") as service:
        service.wait_until_ready()
        service.http.post(
            "/v1/subscriptions", json={"id": "alerts", "filter": "price > 20"}
        ).raise_for_status()
        assert publish(service, 30, 10, 40, 50) == 0
        acknowledge(service, "alerts:0")
        before = state(service)
        assert before == (4, 1, ["alerts:2", "alerts:3"])
        service.kill()
        run("Make a backup", tmp_path)

        service.start()
        service.wait_until_ready()
        assert state(service) == before
        acknowledge(service, "alerts:3")
        service.http.post("/v1/subscriptions", json={"id": "later", "filter": "price > 0"}).raise_for_status()
        assert publish(service, 60) == 4
        assert service.interrupt() == 0
        run("Restore it", tmp_path)

        service.start()
        service.wait_until_ready()
        assert state(service) == before
        assert publish(service, 70) == 4
        assert deliveries(service) == ["alerts:2", "alerts:3", "alerts:4"]

    run("Check it", tmp_path)
    with Service(tmp_path / "culver-check" / "culver-data") as copy:
        copy.wait_until_ready()
        assert state(copy) == before
