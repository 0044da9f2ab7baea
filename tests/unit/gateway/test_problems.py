"""Every error code has one status, and a problem document never leaks or breaks."""

import json

import pytest

import culver.errors
from culver.errors import ClientError, CulverError, InvalidFilter, InvalidRequest, RateLimited, Unavailable
from culver.gateway.problems import (
    KINDS,
    InternalError,
    ProblemResponse,
    encode_problem,
    problem_document,
    status_of,
)

STATUSES = {
    "invalid_input": 400,
    "invalid_event": 400,
    "invalid_filter": 400,
    "invalid_request": 400,
    "invalid_configuration": 400,
    "limit_exceeded": 400,
    "too_large": 413,
    "too_many_subscriptions": 403,
    "rate_limited": 429,
    "not_found": 404,
    "gone": 410,
    "elsewhere": 307,
    "conflict": 409,
    "storage_error": 500,
    "storage_full": 507,
    "storage_corrupt": 500,
    "unavailable": 503,
    "server_error": 502,
    "server_unreachable": 503,
    "server_busy": 503,
    "server_access_denied": 502,
    "server_unsuitable": 502,
    "server_tls_failed": 502,
    "server_not_started": 500,
    "command_refused": 502,
    "internal_error": 500,
}


def error_classes() -> list[type[CulverError]]:
    classes = [item for item in vars(culver.errors).values() if isinstance(item, type)]
    return [
        item
        for item in classes
        if issubclass(item, CulverError) and not issubclass(item, ClientError) and item is not CulverError
    ]


def test_the_table_of_statuses_is_the_documented_one() -> None:
    assert {code: kind.status for code, kind in KINDS.items()} == STATUSES


@pytest.mark.parametrize("kind", error_classes())
def test_every_error_of_the_service_has_a_row_in_the_table(kind: type[CulverError]) -> None:
    assert kind.code in KINDS
    assert status_of(kind("message")) == STATUSES[kind.code]


def test_a_problem_names_code_field_and_whether_a_retry_helps() -> None:
    error = InvalidFilter("expected a value", field="filter", position=9, expected=["a number"])
    assert problem_document(error) == {
        "type": "urn:culver:problem:invalid_filter",
        "title": "The filter is invalid",
        "status": 400,
        "detail": "expected a value",
        "code": "invalid_filter",
        "field": "filter",
        "retryable": False,
        "position": 9,
        "expected": ["a number"],
    }


def test_details_cannot_hide_the_standard_members() -> None:
    document = problem_document(InvalidRequest("no", status=999, code="x", title="y", detail="z"))
    assert (document["status"], document["code"], document["detail"]) == (400, "invalid_request", "no")


@pytest.mark.parametrize(("field", "status"), [("method", 405), ("content-type", 415), ("origin", 403)])
def test_what_is_wrong_with_a_request_as_such_has_a_status_of_its_own(field: str, status: int) -> None:
    assert status_of(InvalidRequest("no", field=field, status=status)) == status
    assert status_of(InvalidRequest("no", field=field)) == 400, "a member of a body may have that name"
    assert status_of(InvalidRequest("no", field=field, status=204)) == 400


def test_what_has_no_utf8_form_and_what_is_not_json_still_encodes() -> None:
    document = problem_document(InvalidRequest("half a pair: \ud800", field="\udfff", path=object()))
    assert json.loads(encode_problem(document))["detail"] == "half a pair: \ud800"


def test_a_message_of_any_length_makes_a_short_problem() -> None:
    error = InvalidRequest("x" * 1_000_000, field="y" * 1_000_000, text="z" * 1_000_000)
    assert len(encode_problem(problem_document(error))) < 5_000


def test_retry_after_is_a_whole_number_of_seconds_of_at_least_one() -> None:
    limited = ProblemResponse(problem_document(RateLimited("slow", retry_after_seconds=2.2)))
    assert limited.headers["retry-after"] == "3"
    assert ProblemResponse(problem_document(Unavailable("starting"))).headers["retry-after"] == "1"
    assert "retry-after" not in ProblemResponse(problem_document(InvalidRequest("no"))).headers


def test_an_unexpected_failure_tells_nothing_of_the_inside() -> None:
    document = problem_document(InternalError())
    assert document["status"] == 500
    assert set(document) == {"type", "title", "status", "detail", "code", "retryable"}
