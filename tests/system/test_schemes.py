"""Subscriptions of all filtering schemes at once on a whole service: delivered to, changed, killed and restarted."""

from pathlib import Path
from typing import Any

from support.service import Service

SCHEMES = ("columnar", "counting", "reference")
FILTERS = ("price > 20 AND symbol LIKE '%A'", "price BETWEEN 10 AND 30 OR symbol = 'XYZ'", "NOT (price < 25)")


def names(scheme: str) -> list[str]:
    return [f"{scheme}-{place}" for place in range(len(FILTERS))]


def offsets(service: Service, name: str) -> list[int]:
    items = service.http.get(f"/v1/subscriptions/{name}/events", params={"wait": 0, "limit": 1000}).json()
    return [item["offset"] for item in items["items"]]


def publish(service: Service) -> None:
    events = [{"price": price, "symbol": symbol} for price in range(0, 40, 3) for symbol in ("XYZ", "A")]
    assert service.http.post("/v1/events", json=events).status_code == 200
    service.wait_until_delivered()


def check(service: Service) -> None:
    """Each filter gives the same with every scheme, and something."""
    for place in range(len(FILTERS)):
        columnar, *others = (offsets(service, f"{scheme}-{place}") for scheme in SCHEMES)
        assert columnar
        assert others == [columnar, columnar]


def told(service: Service) -> dict[str, Any]:
    seen = service.http.get("/v1/pipeline").json()
    return {
        "held": {each["scheme"]: each["registrations"] for each in seen["schemes"]},
        "pairs": {each["scheme"]: each["pairs"] for each in seen["pipeline"]["schemes"]},
        "seconds": {each["scheme"]: each["seconds"] for each in seen["pipeline"]["schemes"]},
    }


def test_all_schemes_side_by_side_through_changes_and_a_kill(tmp_path: Path) -> None:
    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        specs = [
            {"id": name, "filter": text, "scheme": scheme}
            for scheme in SCHEMES
            for name, text in zip(names(scheme), FILTERS, strict=True)
        ]
        assert service.http.post("/v1/subscriptions", json=specs).status_code == 201
        publish(service)
        check(service)
        seen = told(service)
        assert seen["held"] == dict.fromkeys(SCHEMES, 3)
        assert len(set(seen["pairs"].values())) == 1
        assert min(seen["seconds"].values()) > 0
        # One of the first filter goes from scheme to scheme, and takes its mailbox along.
        for scheme in ("reference", "counting", "columnar", "counting"):
            body = {"filter": FILTERS[0], "scheme": scheme}
            assert service.http.put("/v1/subscriptions/columnar-0", json=body).json()["scheme"] == scheme
            publish(service)
        service.http.post("/v1/subscriptions", json={"id": "brief", "filter": "TRUE", "scheme": "counting"})
        assert service.http.delete("/v1/subscriptions/brief").status_code == 204
        check(service)
        service.kill()
        service.start()
        service.wait_until_ready()
        service.wait_until_delivered()  # what was not in files is matched again
        check(service)
        publish(service)
        check(service)
        assert told(service)["held"] == {"columnar": 2, "counting": 4, "reference": 3}
        shown = service.http.get("/v1/subscriptions/columnar-0").json()
        assert (shown["scheme"], shown["filter"]) == ("counting", FILTERS[0])
        assert 'culver_scheme_registrations{scheme="counting"} 4.0' in service.http.get("/metrics").text
