import random
from itertools import islice

from culver.client.link import backoff, subscription_path


def test_waits_double_up_to_a_limit_and_are_never_below_half_of_it() -> None:
    waits = list(islice(backoff(random.Random(7), 0.1, 2.0), 12))
    ceilings = [min(0.1 * 2**n, 2.0) for n in range(12)]
    assert all(ceiling / 2 <= wait <= ceiling for wait, ceiling in zip(waits, ceilings, strict=True))


def test_two_clients_do_not_wait_equally_long() -> None:
    first = list(islice(backoff(random.Random(1)), 5))
    assert first != list(islice(backoff(random.Random(2)), 5))


def test_a_subscription_id_cannot_leave_its_place_in_the_path() -> None:
    assert subscription_path("a/../b?c", "/ack") == "/v1/subscriptions/a%2F..%2Fb%3Fc/ack"
