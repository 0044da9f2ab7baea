"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run the long tests at full length (50,000 events and ten kills, a million pairs)",
    )


@pytest.fixture(scope="session")
def full_length(request: pytest.FixtureRequest) -> bool:
    """Whether the long tests run at full length."""
    return bool(request.config.getoption("--full"))
