"""The API's own description as a judge: whether a value fits a schema, and an answer its operation."""

import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from culver.config import Settings
from culver.gateway.api.openapi import document
from culver.gateway.app import OPERATIONS

DOCUMENT = document(Settings(), OPERATIONS)


def described_operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


def errors_of(schema: dict[str, Any], value: Any) -> list[str]:
    """What a schema of the document says against a value."""
    whole = {**schema, "components": DOCUMENT["components"]}
    validator = Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [error.message for error in validator.iter_errors(value)]


def operation_of(method: str, path: str) -> tuple[str, str]:
    """The described operation that a request is for."""
    for found in described_operations():
        pattern = re.sub(r"{\w+}", "[^/]+", found[1])
        if found[0] == method and re.fullmatch(pattern, path):
            return found
    raise AssertionError(f"{method} {path} is not described")


def check_answer(answer: httpx.Response) -> tuple[str, str]:
    """Assert that an answer is as the document says; returns its operation."""
    key = operation_of(answer.request.method, answer.request.url.path)
    described = described_operations()[key]["responses"]
    assert str(answer.status_code) in described, (key, answer.status_code, answer.text)
    response = described[str(answer.status_code)]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    media = answer.headers.get("content-type", "").partition(";")[0]
    contents = response.get("content", {})
    assert media in contents or not (contents or answer.content), (key, media)
    if media.endswith("json"):
        assert errors_of(contents[media]["schema"], answer.json()) == [], (key, answer.text)
    return key
