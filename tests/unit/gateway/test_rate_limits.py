"""Token buckets, with a clock that the test turns."""

from culver.gateway.rate_limits import TokenBuckets, address_key


def test_a_full_bucket_grants_one_second_of_its_rate_at_once() -> None:
    buckets = TokenBuckets(rate=10)
    assert [buckets.take("a", 1, now=0.0) for _ in range(10)] == [0.0] * 10
    assert buckets.take("a", 1, now=0.0) > 0


def test_the_answer_is_when_asking_again_succeeds() -> None:
    buckets = TokenBuckets(rate=10)
    buckets.take("a", 10, now=0.0)
    wait = buckets.take("a", 1, now=0.0)
    assert wait == 0.1
    assert buckets.take("a", 1, now=wait * 0.9) > 0
    assert buckets.take("a", 1, now=wait * 1.01) == 0


def test_a_batch_larger_than_the_bucket_passes_and_is_paid_for_afterwards() -> None:
    buckets = TokenBuckets(rate=10)
    assert buckets.take("a", 100, now=0.0) == 0
    assert buckets.take("a", 1, now=5.0) > 0
    assert buckets.take("a", 1, now=9.2) == 0


def test_what_is_given_back_can_be_taken_again() -> None:
    buckets = TokenBuckets(rate=10)
    assert buckets.take("a", 10, now=0.0) == 0.0
    buckets.give_back("b", 1)
    assert buckets.take("a", 1, now=0.0) > 0.0
    buckets.give_back("a", 1)
    assert buckets.take("a", 1, now=0.0) == 0.0
    assert buckets.take("a", 1, now=0.0) > 0.0


def test_an_idle_bucket_does_not_save_up_more_than_a_second() -> None:
    buckets = TokenBuckets(rate=10)
    buckets.take("a", 1, now=0.0)
    granted = sum(buckets.take("a", 1, now=1_000.0) == 0 for _ in range(50))
    assert granted == 10


def test_one_client_does_not_spend_the_tokens_of_another() -> None:
    buckets = TokenBuckets(rate=1)
    assert buckets.take("a", 1, now=0.0) == 0
    assert buckets.take("a", 1, now=0.0) > 0
    assert buckets.take("b", 1, now=0.0) == 0


def test_a_rate_of_zero_grants_everything() -> None:
    buckets = TokenBuckets(rate=0)
    assert all(buckets.take("a", 1_000_000, now=0.0) == 0 for _ in range(100))
    assert len(buckets._buckets) == 0


def test_the_number_of_buckets_is_bounded_and_the_one_in_use_stays() -> None:
    buckets = TokenBuckets(rate=1, max_buckets=100)
    buckets.take("busy", 5, now=0.0)
    for number in range(10_000):
        buckets.take(f"client {number}", 1, now=0.0)
        assert buckets.take("busy", 1, now=0.0) > 0
    assert len(buckets._buckets) == 100


def test_an_ipv6_customer_is_one_client_and_a_mapped_address_is_its_ipv4_one() -> None:
    assert address_key("2001:db8:1:2::1") == address_key("2001:db8:1:2:ffff::9")
    assert address_key("2001:db8:1:2::1") != address_key("2001:db8:1:3::1")
    assert address_key("::ffff:192.0.2.7") == address_key("192.0.2.7")
    assert address_key("not an address") == "not an address"
    assert address_key(None) == ""
