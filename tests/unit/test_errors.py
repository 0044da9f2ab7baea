"""Errors: codes that programs rely on, sentences, and whether a retry can help."""

import inspect

import pytest

from culver import errors
from culver.errors import CulverError, InvalidEvent, RateLimited, StorageCorrupt, StorageFull

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, CulverError)
]


def test_codes_stay_as_they_are() -> None:
    assert {error.__name__: (error.code, error.retryable) for error in CLASSES} == {
        "CulverError": ("error", False),
        "InvalidInput": ("invalid_input", False),
        "InvalidEvent": ("invalid_event", False),
        "InvalidFilter": ("invalid_filter", False),
        "InvalidRequest": ("invalid_request", False),
        "InvalidConfiguration": ("invalid_configuration", False),
        "LimitExceeded": ("limit_exceeded", False),
        "TooLarge": ("too_large", False),
        "TooManySubscriptions": ("too_many_subscriptions", False),
        "RateLimited": ("rate_limited", True),
        "NotFound": ("not_found", False),
        "Gone": ("gone", False),
        "Conflict": ("conflict", False),
        "Elsewhere": ("elsewhere", False),
        "StorageError": ("storage_error", True),
        "StorageFull": ("storage_full", True),
        "StorageCorrupt": ("storage_corrupt", False),
        "Unavailable": ("unavailable", True),
        "MissingExtra": ("missing_extra", False),
        "ServerError": ("server_error", False),
        "ServerUnreachable": ("server_unreachable", True),
        "ServerBusy": ("server_busy", True),
        "ServerAccessDenied": ("server_access_denied", False),
        "ServerUnsuitable": ("server_unsuitable", False),
        "ServerTlsFailed": ("server_tls_failed", False),
        "ServerNotStarted": ("server_not_started", False),
        "CommandRefused": ("command_refused", False),
        "ClientError": ("client_error", False),
        "ConnectionFailed": ("connection_failed", True),
        "DataLoss": ("data_loss", False),
        "RequestRefused": ("request_refused", False),
    }


def test_every_code_means_one_error() -> None:
    codes = [error.code for error in CLASSES]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_in_the_drawing_and_says_when_it_is_raised(error: type[CulverError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__
    assert error.__doc__


def test_an_error_carries_message_field_and_details() -> None:
    error = InvalidEvent("price is not a number", field="price", line=3)
    assert str(error) == error.message == "price is not a number"
    assert error.field == "price"
    assert error.details == {"line": 3}


def test_an_error_needs_nothing_but_a_message() -> None:
    error = CulverError("no")
    assert error.field is None
    assert error.details == {}


def test_groups_catch_their_members() -> None:
    assert issubclass(RateLimited, errors.LimitExceeded)
    assert issubclass(StorageFull, errors.StorageError)
    assert issubclass(StorageCorrupt, errors.StorageError)
