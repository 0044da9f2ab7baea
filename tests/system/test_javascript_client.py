"""The JavaScript client: its own tests under Node.js, its package, and a page in a real browser."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import culver
from culver.version import __version__
from support.browser import find_browser, open_page
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.service import Service, free_port
from support.site_proxy import SiteProxy
from support.site_thread import site_in_thread

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "js"


def _node() -> tuple[str, ...]:
    """The command that runs Node.js with a WebSocket, which is behind a flag before version 22."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node here; the JavaScript client is tested with Node.js 20 or newer")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major = int(version.strip().removeprefix("v").partition(".")[0])
    if major < 20:
        pytest.skip(f"node is {version.strip()} here; the JavaScript client needs Node.js 20 or newer")
    return (program,) if major >= 22 else (program, "--experimental-websocket", "--no-warnings")


@pytest.mark.slow(seconds=4)
def test_the_tests_of_the_package_pass_against_a_site() -> None:
    node = _node()
    with site_in_thread(FakeSite(gateway_settings())) as url:
        done = subprocess.run(
            [*node, "--test", "--test-reporter=tap"],
            cwd=PACKAGE,
            env={**os.environ, "CULVER_URL": url},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {name: int(number) for name, number in re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE)}
    assert counts["pass"] > 30
    assert counts["skipped"] == 1, "only the one about a runtime without WebSocket"


@pytest.mark.slow(seconds=6)
def test_groups_work_with_a_whole_site(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        service.wait_until_ready()
        done = subprocess.run(
            [*_node(), "--test", "--test-reporter=tap", "test/groups.test.js"],
            cwd=PACKAGE,
            env={**os.environ, "CULVER_URL": service.url},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# skipped 0" in done.stdout


def _run(program: str, url: str) -> str:
    """What a program prints, with the client imported from the package and the site's address in CULVER_URL."""
    done = subprocess.run(
        [*_node(), "--input-type=module", "-e", f'import {{ connect }} from "./src/index.js";{program}'],
        cwd=PACKAGE,
        env={**os.environ, "CULVER_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_websocket_the_package_still_publishes_and_says_what_is_missing() -> None:
    program = """
globalThis.WebSocket = undefined;
const client = connect();
console.log((await client.publish({ n: 1 })).accepted);
await client.subscribe("TRUE").start().catch((error) => console.log(error.message));
"""
    with site_in_thread(FakeSite(gateway_settings())) as url:
        assert _run(program, url) == (
            "1\nthis runtime has no WebSocket: use Node.js 22 or newer, or pass one as the option WebSocket\n"
        )


def test_the_client_follows_a_subscription_to_its_gateway() -> None:
    program = """
const client = connect();
const { value } = await client.subscribe(null, { durable: "alerts", ack: "manual" }).next();
await value.ack();
console.log(value.deliveryId);
await client.close();
"""
    here, there = FakeSite(gateway_settings()), FakeSite(gateway_settings())
    with site_in_thread(here) as first, site_in_thread(there) as second:
        here.ports["alerts"] = int(second.rpartition(":")[2])
        with culver.connect_sync(second) as client:
            client.create_subscription("TRUE", id="alerts")
            client.publish(n=1)
        assert _run(program, first) == "alerts:0\n"
    assert there.acknowledged == {"alerts": 0}


@pytest.mark.slow(seconds=2)
def test_the_package_holds_its_sources_and_has_the_version_of_the_product(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here")
    done = subprocess.run(
        [npm, "pack", "--dry-run", "--json", "--offline", f"--cache={tmp_path}"],
        cwd=PACKAGE,
        env={**os.environ, "npm_config_update_notifier": "false"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer = json.loads(done.stdout)
    (packed,) = answer if isinstance(answer, list) else answer.values()
    assert packed["id"] == f"culver-client@{__version__}"
    sources = {f"src/{path.name}" for path in (PACKAGE / "src").iterdir()}
    assert {file["path"] for file in packed["files"]} == sources | {"package.json", "README.md", "LICENSE"}


class _Page:
    """What the page has reported, and waiting for more of it."""

    def __init__(self, proxy: SiteProxy) -> None:
        self._proxy = proxy

    @property
    def state(self) -> dict[str, Any]:
        assert self._proxy.reports
        state: dict[str, Any] = self._proxy.reports[-1]
        assert state["failure"] is None, state["failure"]
        return state

    def wait_until(self, what: str, condition: Callable[[dict[str, Any]], object]) -> None:
        deadline = time.monotonic() + 120
        while not (self._proxy.reports and condition(self.state)):
            last = self._proxy.reports[-1:]
            assert time.monotonic() < deadline, f"the page did not {what}; its last report is {last}"
            time.sleep(0.02)


@pytest.mark.system
@pytest.mark.slow(seconds=9)
def test_a_page_gets_everything_once_while_its_site_is_killed_behind_a_proxy(tmp_path: Path) -> None:
    browser = find_browser()
    with (
        Service(tmp_path / "data") as service,
        SiteProxy(service.port, {"/client/": PACKAGE / "src", "/page/": PACKAGE / "test"}).running() as proxy,
    ):
        service.wait_until_ready()
        proxy.away = True
        with open_page(browser, f"{proxy.url}/page/restarts.html"):
            page = _Page(proxy)
            page.wait_until("wait for the site", lambda state: state["disconnected"] >= 2)
            proxy.away = False
            page.wait_until("connect", lambda state: state["opened"] == 2 and state["refusal"])
            assert page.state["published"]["accepted"] == 2
            assert page.state["refusal"]["name"] == "RequestRefused"
            assert page.state["refusal"]["code"] == "invalid_event"
            assert page.state["refusal"]["field"] == "at"
            assert "not a timestamp" in page.state["refusal"]["message"]

            offsets: dict[int, int] = {}

            def publish(numbers: range) -> None:
                answer = service.http.post("/v1/events", json=[{"n": n} for n in numbers])
                offsets.update(zip(numbers, range(answer.json()["first_offset"], 1 << 62), strict=False))

            publish(range(20))
            page.wait_until("receive", lambda state: len(state["durable"]) == len(state["live"]) == 20)
            before, refused = page.state, proxy.refused
            publish(range(20, 40))  # the kill comes while these are under way
            proxy.away = True
            service.kill()
            page.wait_until("notice", lambda state: state["disconnected"] >= before["disconnected"] + 2)
            service.start()
            service.wait_until_ready()
            publish(range(40, 60))
            assert proxy.refused > refused
            proxy.away = False
            page.wait_until("come back", lambda state: state["opened"] == before["opened"] + 2)
            publish(range(60, 80))
            page.wait_until(
                "receive", lambda state: len(state["durable"]) >= 80 and state["live"][-1][1] == 79
            )

            state = page.state
            assert [n for _, n in state["durable"]] == list(range(80))
            assert [name for name, _ in state["durable"]] == [f"browser:{offsets[n]}" for n in range(80)]
            seen = [n for _, n in state["live"]]
            assert seen == sorted(set(seen))
            (gap,) = state["gaps"]
            assert gap["reason"] == "disconnected"
            missing = set(range(80)) - set(seen)
            assert set(range(40, 60)) <= missing
            assert [n for n in missing if not gap["start"] <= offsets[n] < gap["end"]] == []

            def all_acknowledged() -> bool:
                return bool(service.http.get("/v1/subscriptions/browser").json()["pending"] == 0)

            page.wait_until("acknowledge", lambda _: all_acknowledged())


@pytest.mark.slow(seconds=4)
def test_the_example_page_uses_a_site_of_another_origin() -> None:
    browser = find_browser()
    folders = {f"/{name}/": ROOT / name for name in ("clients", "examples")}
    with (
        SiteProxy(free_port(), folders).running() as proxy,  # serves the page, and has no site behind it
        site_in_thread(FakeSite(gateway_settings(allowed_origins=proxy.url))) as url,
        open_page(browser, f"{proxy.url}/clients/js/test/ticker.html?site={url}"),
    ):
        page = _Page(proxy)
        page.wait_until("show the event and the error", lambda state: state["done"])
        assert page.state["events"] == "1: XYZ at 21.5"
