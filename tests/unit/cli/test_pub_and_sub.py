"""`culver pub`, `culver sub` and `culver subs` against a gateway on a socket."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from culver.cli import main
from culver.config import ChannelSettings, Settings
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread


@pytest.fixture
def site() -> FakeSite:
    return FakeSite(gateway_settings(Settings(channels=ChannelSettings(url="http://channels.test"))))


@pytest.fixture(autouse=True)
def url(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with site_in_thread(site) as address:
        monkeypatch.setenv("CULVER_URL", address)
        yield address


@contextmanager
def _culver(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The program itself, as another process; `listening` is read before it is handed out, for `sub`."""
    with subprocess.Popen(
        [sys.executable, "-m", "culver", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _stderr_line(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def _stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


# --- pub ------------------------------------------------------------------------------------------------


def test_one_event_is_published(capsys: pytest.CaptureFixture[str], site: FakeSite) -> None:
    assert main(["pub", '{"symbol": "XYZ", "price": 21.5}']) == 0
    assert capsys.readouterr().out == "1 event at offset 0\n"
    assert main(["pub", '[{"a": 1}, {"a": 2}]']) == 0
    assert capsys.readouterr().out == "2 events at offsets 1 to 2\n"
    assert main(["pub", "--quiet", '{"a": 3}']) == 0
    assert capsys.readouterr().out == ""
    assert len(site.events) == 4


@pytest.mark.parametrize("text", ['{"a": 1', "price=3", '"text"', "7", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_an_argument_that_is_no_event_is_invalid_input(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["pub", text]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("culver: the argument is not an event: ")
    assert shown.err.count("\n") == 1


def test_lines_of_standard_input_are_published(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, site: FakeSite
) -> None:
    _stdin(monkeypatch, b"".join(b'{"n": %d}\n' % n for n in range(5000)))
    assert main(["pub", "-"]) == 0
    assert capsys.readouterr().out == "5000 events, the last at offset 4999\n"
    assert [event.data["n"] for event in site.events] == list(range(5000))


def test_refused_lines_are_named_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, site: FakeSite
) -> None:
    too_many = json.dumps({f"a{n}": n for n in range(300)}).encode()
    _stdin(monkeypatch, b'{"n": 1}\n{bad\n\n{"n": NaN}\n' + too_many + b'\n{"n": 2}')
    assert main(["pub"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "2 events, the last at offset 1\n"
    named = [line.split(":")[1].strip() for line in shown.err.splitlines() if "line" in line]
    assert sorted(named) == ["line 2", "line 4", "line 5"]
    assert "culver: 3 of 5 events were refused\n" in shown.err
    assert sorted(event.data["n"] for event in site.events) == [1, 2]


def test_more_refused_lines_than_a_connection_stands_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, site: FakeSite
) -> None:
    too_many = json.dumps({f"a{n}": n for n in range(300)}).encode() + b"\n"
    _stdin(monkeypatch, b'{"n": 1}\n' + too_many * 150 + b'{"n": 2}\n')
    assert main(["pub"]) == 2
    shown = capsys.readouterr()
    assert "culver: 150 of 152 events were refused\n" in shown.err
    assert shown.err.count("culver: line ") == 20
    assert len(site.events) == 2


def test_events_in_a_pipe_are_published_when_they_come_not_when_it_ends(site: FakeSite) -> None:
    with _culver("sub", "n > 0", "--count", "1", "--json") as subscriber, _culver("pub", "-") as publisher:
        assert _stderr_line(subscriber) == "listening from position 0\n"
        assert publisher.stdin is not None
        assert subscriber.stdout is not None
        publisher.stdin.write('{"n": 1}\n')
        publisher.stdin.flush()
        assert json.loads(subscriber.stdout.readline())["event"] == {"n": 1}
        assert publisher.poll() is None
        out, err = publisher.communicate(timeout=20)
        assert (publisher.returncode, out, err) == (0, "1 event at offset 0\n", "")


def test_without_an_event_on_a_terminal_pub_explains_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stdin(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["pub"]) == 2
    assert "culver pub - < events.ndjson" in capsys.readouterr().err


# --- sub ------------------------------------------------------------------------------------------------


def test_events_are_printed_with_their_offsets(url: str) -> None:
    with _culver("sub", "price > 20", "--count", "2") as process:
        assert _stderr_line(process) == "listening from position 0\n"
        assert main(["pub", '[{"price": 3}, {"price": 30}, {"name": "Zoë", "price": 40}]']) == 0
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert out == '1  {"price": 30}\n2  {"name": "Zoë", "price": 40}\n'


def test_json_lines_hold_the_delivery_id_the_offset_and_the_event(site: FakeSite) -> None:
    with _culver("sub", "price > 20", "--durable", "alerts", "--json", "--count", "1") as process:
        _stderr_line(process)
        main(["pub", '{"price": 30}'])
        out, _ = process.communicate(timeout=20)
    assert json.loads(out) == {"delivery_id": "alerts:0", "offset": 0, "event": {"price": 30}}
    assert site.acknowledged == {"alerts": 0}


def test_a_durable_subscription_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    main(["subs", "add", "alerts", "n >= 0"])
    main(["pub", '[{"n": 0}, {"n": 1}, {"n": 2}]'])
    capsys.readouterr()
    assert main(["sub", "--durable", "alerts", "--count", "2"]) == 0
    assert capsys.readouterr().out == '0  {"n": 0}\n1  {"n": 1}\n'
    assert main(["sub", "--durable", "alerts", "--count", "1"]) == 0
    assert capsys.readouterr().out == '2  {"n": 2}\n'


def test_what_would_steer_a_terminal_is_escaped_wherever_it_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "\x1b[2J\x9b1m\u202e"
    condition = f"name = '{hostile}'"
    assert main(["subs", "add", "odd", condition]) == 0
    assert main(["subs", "add", "told", "n = 1", "--channel", hostile]) == 0
    assert main(["pub", json.dumps({"name": hostile}, ensure_ascii=False)]) == 0
    assert main(["sub", "--durable", "odd", "--count", "1", "--timeout", "20"]) == 0
    assert main(["subs", "list"]) == 0
    assert main(["subs", "list", "--json"]) == 0
    assert main(["subs", "show", "told"]) == 0
    assert main(["filter", "explain", condition]) == 0
    assert main(["subs", "add", "wrong", f"{condition} {hostile}"]) == 2
    assert main(["pub", f'{{"{hostile}": NaN}}']) == 2
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}, text
    assert shown.out.count(r"\u009b1m\u202e") == 6, shown.out


def test_a_timeout_without_enough_events_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "TRUE", "--timeout", "0.05"]) == 0
    assert main(["sub", "TRUE", "--timeout", "0.05", "--count", "2"]) == 1
    assert capsys.readouterr().err.endswith("culver: 0 of 2 events came within 0.05 s\n")


def test_a_refused_filter_is_shown_with_a_caret(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "price >"]) == 2
    assert capsys.readouterr().err == (
        "culver: line 1, column 8: expected an attribute name, a literal or (, found the end of the filter\n"
        "  price >\n"
        "         ^\n"
    )


def test_ctrl_c_ends_sub_quietly() -> None:
    with _culver("sub", "TRUE") as process:
        _stderr_line(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err.strip()) == (130, "", "")


def test_a_reader_that_goes_away_ends_sub_quietly() -> None:
    with _culver("sub", "TRUE") as process:
        _stderr_line(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        main(["pub", '{"n": 1}'])
        assert process.stderr.read().strip() == ""
        assert process.wait(20) == 1


def test_a_subscription_that_is_removed_ends_sub() -> None:
    with _culver("sub", "TRUE", "--durable", "alerts") as process:
        _stderr_line(process)
        main(["subs", "remove", "alerts"])
        assert process.communicate(timeout=20)[1] == "culver: the subscription was removed\n"
        assert process.returncode == 1


def test_sub_without_a_filter_or_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "--count", "1"]) == 2
    assert capsys.readouterr().err.startswith("culver: there is no filter; give one")


# --- subs -----------------------------------------------------------------------------------------------


def test_subscriptions_are_added_listed_shown_replaced_and_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*arguments: str) -> str:
        assert main(["subs", *arguments]) == 0
        return capsys.readouterr().out

    assert main(["subs", "list"]) == 0
    assert capsys.readouterr().err == "there are no durable subscriptions\n"
    assert run("add", "alerts", "n > 1", "--max-count", "10") == "alerts takes effect from position 0\n"
    heads = f"{'ID':<24} {'PENDING':>9}  SCHEME     FILTER\n"
    assert run("list") == f"{heads}{'alerts':<24} {0:>9}  columnar   n > 1\n"
    assert json.loads(run("list", "--json"))["mailbox"]["max_count"] == 10
    assert "filter           n > 1\n" in run("show", "alerts")
    replaced = json.loads(run("add", "alerts", "n > 2", "--replace", "--scheme", "counting", "--json"))
    assert (replaced["filter"], replaced["scheme"]) == ("n > 2", "counting")
    assert "scheme           counting\n" in run("show", "alerts")
    assert json.loads(run("show", "alerts", "--json"))["filter"] == "n > 2"
    assert "delivers to" not in run("show", "alerts")
    run("add", "alerts", "n > 2", "--replace", "--channel", "alerts.eu")
    assert "delivers to      channel alerts.eu\n" in run("show", "alerts")
    assert run("remove", "alerts") == "alerts is removed\n"


def test_what_does_not_exist_or_is_taken_is_a_failure_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["show", "nothing"], ["remove", "nothing"], ["add", "nothing", "TRUE", "--replace"]):
        assert main(["subs", *arguments]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["subs", "add", "alerts", "TRUE"]) == 0
    assert main(["subs", "add", "alerts", "TRUE"]) == 1
    capsys.readouterr()
    for arguments in (
        ["subs", "add", "other", "TRUE"],
        ["sub", "TRUE"],
        ["sub", "TRUE", "--durable", "other"],
    ):
        assert main([*arguments, "--scheme", "magic"]) == 2
        error = capsys.readouterr().err
        assert "known: columnar, counting, reference" in error


# --- failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["pub", "{}"], ["sub", "TRUE"], ["subs", "list"]])
def test_a_site_that_is_not_there_is_one_line_with_advice(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([*arguments, "--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "culver: cannot connect to http://127.0.0.1:1: connection refused; is a site running there? "
        "`culver serve` starts one\n"
    )


def test_an_address_that_is_none_is_invalid_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "{}", "--url", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("culver: 'nowhere' is not the address of a site")


def test_the_debug_variable_shows_where_an_error_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CULVER_DEBUG", "1")
    with _culver("pub", "{}", "--url", "nowhere") as process:
        assert "Traceback" in process.communicate(timeout=20)[1]


# --- filters that are doubtful --------------------------------------------------------------------------


def test_what_is_doubtful_about_a_filter_is_said_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    doubt = "symbol = XYZ compares two attributes; if the right side is a text, write symbol = 'XYZ'\n"
    assert main(["subs", "add", "alerts", "symbol = XYZ"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "culver: warning: " + doubt
    assert shown.out == "alerts takes effect from position 0\n"
    assert main(["sub", "symbol = XYZ", "--timeout", "0.01"]) == 0
    assert "culver: live subscription: " + doubt in capsys.readouterr().err


# --- sets -----------------------------------------------------------------------------------------------


def test_rows_of_a_file_become_a_set_that_is_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("symbol:string,close:real\nACME,20.5\nEMCA,7\n")
    filter_text = "symbol = ? AND close >= ?"
    assert main(["subs", "load", "quotes", filter_text, str(tmp_path / "rows.csv")]) == 0
    shown = capsys.readouterr()
    assert shown.out == "2 subscriptions, quotes.0 to quotes.1, take effect from position 0\n"
    assert "2 subscriptions in set quotes:\n  row 0  symbol = 'ACME' AND close >= 20.5\n" in shown.err
    _stdin(monkeypatch, b'["ACME", 1]\n\n["X", 2]\n')
    assert main(["subs", "load", "quotes", filter_text, "-", "--first", "2"]) == 0
    assert "quotes.2 to quotes.3" in capsys.readouterr().out
    assert main(["subs", "sets", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 4
    assert main(["subs", "show", "quotes.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["filter"] == "symbol = 'EMCA' AND close >= 7.0"
    assert main(["subs", "remove-set", "quotes"]) == 0
    assert capsys.readouterr().out == "quotes is removed: 4 subscriptions\n"


def test_rows_that_are_wrong_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stdin(monkeypatch, b'["ACME", 1]\nnonsense\n')
    assert main(["subs", "load", "quotes", "symbol = ? AND close >= ?", "-"]) == 2
    assert "line 2 is not an array of values" in capsys.readouterr().err
    _stdin(monkeypatch, b'["ACME", 1]\n["ACME", null]\n')
    assert main(["subs", "load", "quotes", "symbol = ? AND close >= ?", "-"]) == 2
    assert "line 2: the value for parameter 2 is null" in capsys.readouterr().err


# --- sub --set and --prefix -----------------------------------------------------------------------------


def test_events_of_a_set_are_lines_with_the_subscriptions_that_they_are_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, site: FakeSite
) -> None:
    rows = tmp_path / "rows.ndjson"
    rows.write_text("[1]\n[2]\n[1]\n[1]\n[1]\n")
    assert main(["subs", "load", "quotes", "n >= ?", str(rows)]) == 0
    assert main(["pub", '[{"n": 1}, {"n": 2}]']) == 0
    capsys.readouterr()
    assert main(["sub", "--set", "quotes", "--count", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "following 5 subscriptions\n"
    assert shown.out == '0  quotes.0,quotes.2,quotes.3,+1  {"n": 1}\n'
    assert site.acknowledged["quotes.0"] == 0
    assert main(["sub", "--prefix", "quotes.1", "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "offset": 1,
        "subscriptions": ["quotes.1"],
        "event": {"n": 2},
    }


def test_a_set_that_does_not_exist_is_named_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "--set", "quots"]) == 1
    assert "there is no set 'quots'; the site has no sets" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        _stdin(patch, b"[1]\n")
        assert main(["subs", "load", "quotes", "n >= ?", "-"]) == 0
    capsys.readouterr()
    assert main(["sub", "--set", "quots"]) == 1
    assert "there is no set 'quots'; did you mean quotes?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "excess"),
    [
        (["--set", "quotes", "n > 0"], "leave out FILTER"),
        (["--prefix", "a", "--durable", "b"], "leave out --durable"),
        (["--set", "quotes", "--prefix", "q", "--scheme", "counting"], "leave out --prefix and --scheme"),
    ],
)
def test_a_set_or_a_prefix_takes_no_filter_and_nothing_else(
    capsys: pytest.CaptureFixture[str], arguments: list[str], excess: str
) -> None:
    assert main(["sub", *arguments]) == 2
    assert excess in capsys.readouterr().err


# --- log ------------------------------------------------------------------------------------------------


def test_log_prints_what_the_site_has(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        assert main(["pub", json.dumps({"n": number})]) == 0
    capsys.readouterr()
    assert main(["log", "n > 0", "--to", "3"]) == 0
    assert capsys.readouterr().out == '1  {"n": 1}\n2  {"n": 2}\n'
    assert main(["log", "--from", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["offset"], record["event"]) == (3, {"n": 3})
    assert main(["log", "--count", "1", "--since", "2000-01-01", "--until", record["received"]]) == 0
    assert capsys.readouterr().out == ""
    assert main(["log", "--since", "2000-01-01", "-n", "1"]) == 0
    assert capsys.readouterr().out == '0  {"n": 0}\n'


def test_log_refuses_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "n >"]) == 2
    assert main(["log", "--since", "yesterday"]) == 2
    assert "'yesterday' is not a time" in capsys.readouterr().err
    assert main(["log", "--since", "2000-01-01", "--from", "3"]) == 2
    assert "not both" in capsys.readouterr().err
