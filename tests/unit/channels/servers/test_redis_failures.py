"""Replies and failures of servers become errors with a code, a sentence and word of whether a retry helps."""

import ssl

import pytest

from culver.channels.servers.redis_failures import failed_connection, garbage, greeting_refusal, refusal
from culver.errors import (
    CommandRefused,
    ServerAccessDenied,
    ServerBusy,
    ServerError,
    ServerTlsFailed,
    ServerUnreachable,
    ServerUnsuitable,
)

URL = "redis://h:1"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("NOAUTH Authentication required.", ServerAccessDenied),
        ("WRONGPASS invalid username-password pair or user is disabled.", ServerAccessDenied),
        ("NOPERM this user has no permissions to run the 'publish' command", ServerAccessDenied),
        ("DENIED Redis is running in protected mode", ServerAccessDenied),
        ("LOADING Redis is loading the dataset in memory", ServerBusy),
        ("OOM command not allowed when used memory > 'maxmemory'.", ServerBusy),
        ("ERR max number of clients reached", ServerBusy),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CommandRefused),
        ("ERR unknown command 'NONSENSE'", CommandRefused),
        ("", CommandRefused),
    ],
)
def test_error_reply_has_its_class(reply: str, error: type[ServerError]) -> None:
    found = refusal(URL, reply)
    assert type(found) is error
    assert URL in found.message
    assert reply in found.message
    assert found.details["url"] == URL


@pytest.mark.parametrize(
    "reply", ["ERR unknown command `HELLO`, with args", "NOPROTO unsupported protocol version"]
)
def test_server_that_does_not_know_the_greeting_is_too_old(reply: str) -> None:
    assert isinstance(greeting_refusal(URL, reply), ServerUnsuitable)


def test_other_refusals_of_the_greeting_keep_their_class() -> None:
    assert isinstance(greeting_refusal(URL, "WRONGPASS no"), ServerAccessDenied)
    assert isinstance(greeting_refusal(URL, "ERR max number of clients reached"), ServerBusy)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02", "rediss://"),
        (b"SSH-2.0-OpenSSH", "SSH-2.0"),
        (b"x" * 100_000, "is not a Redis server"),
    ],
)
def test_other_protocols_are_named(data: bytes, says: str) -> None:
    error = garbage(URL, data)
    assert says in error.message
    assert len(error.message) < 400


def test_long_reply_is_shortened() -> None:
    assert len(refusal(URL, "ERR " + "x" * 1_000_000).message) < 400


def test_system_errors_say_what_the_system_says() -> None:
    error = failed_connection(URL, ConnectionRefusedError(111, "Connection refused"))
    assert isinstance(error, ServerUnreachable)
    assert "Connection refused" in error.message


def test_tls_errors_are_told_apart_from_a_server_that_is_away() -> None:
    assert isinstance(failed_connection(URL, ssl.SSLError(1, "wrong version number")), ServerTlsFailed)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("WRONG_VERSION_NUMBER", "write redis:// instead of rediss://"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "--tls-cert and --tls-key"),
        ("TLSV1_ALERT_UNKNOWN_CA", "does not trust the certificate of this client"),
        ("UNHEARD_OF", "unheard of; check that it speaks TLS, and the certificates"),
    ],
)
def test_reasons_of_tls_come_with_what_to_do(reason: str, says: str) -> None:
    failure = ssl.SSLError(1, "[SSL] text")
    failure.reason = reason
    error = failed_connection(URL, failure)
    assert isinstance(error, ServerTlsFailed)
    assert says in error.message


def test_unknown_authority_can_be_given_and_a_wrong_name_cannot_be_helped() -> None:
    failure = ssl.SSLCertVerificationError(1, "text")
    failure.verify_code, failure.verify_message = 20, "unable to get local issuer certificate"
    assert "--tls-ca" in failed_connection(URL, failure).message
    failure.verify_code, failure.verify_message = 62, "Hostname mismatch"
    assert "--tls-ca" not in failed_connection(URL, failure).message
