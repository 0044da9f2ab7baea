"""What every registry does, whatever it is made of."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from culver.config import RegistrySettings
from culver.errors import Conflict, InvalidRequest, NotFound, TooManySubscriptions, Unavailable
from culver.registry.registration import SubscriptionSpec
from culver.registry.registry import Changes, Registry
from support.registries import REGISTRIES, at, must_not_be_called
from support.subscriptions import expanded, predicate, spec

OpenAgain = Callable[[], Registry]
SETTINGS = RegistrySettings(max_subscriptions=20_000)


@pytest.fixture(params=list(REGISTRIES))
def open_registry(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAgain:
    """Opens the same registry each time."""
    return lambda: REGISTRIES[request.param](tmp_path, SETTINGS)


@pytest.fixture
def registry(open_registry: OpenAgain) -> Iterator[Registry]:
    with closing(open_registry()) as registry:
        yield registry


def test_new_registry_is_empty_at_version_zero(registry: Registry) -> None:
    assert (registry.version, registry.count()) == (0, 0)
    assert registry.page(None, 10) == []
    assert list(registry.registrations()) == []
    assert registry.changes(0) == Changes(0, (), ())


def test_added_subscription_is_in_effect_from_the_position_on(registry: Registry) -> None:
    asked = SubscriptionSpec(
        predicate("a = 1"),
        id="alerts",
        expires_at_us=77,
        mailbox_count=5,
        mailbox_bytes=6,
        mailbox_age_seconds=7,
    )
    (made,) = registry.add([asked], at(100), 42)
    assert (made.id, made.filter, made.durable, made.since, made.until) == (
        "alerts",
        "a = 1",
        True,
        100,
        None,
    )
    assert (made.removed, made.version, made.created_at_us, made.expires_at_us) == (False, 1, 42, 77)
    assert (made.mailbox_count, made.mailbox_bytes, made.mailbox_age_seconds) == (5, 6, 7)
    assert registry.get("alerts") == made
    assert list(registry.registrations()) == [made]


def test_filtering_scheme_is_kept_and_goes_with_each_registration(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        one, two = registry.add([spec("one", scheme="counting"), spec("two")], at(1), 1)
        assert (one.scheme, two.scheme) == ("counting", "columnar")
        assert registry.replace(spec("one", scheme="reference"), at(5), 2).scheme == "reference"
        registry.remove(["two"], at(6), 3)
    with closing(open_registry()) as registry:
        schemes = [each.scheme for each in expanded(registry.changes(0).added)]
        assert schemes == ["counting", "columnar", "reference"]
        assert [each.scheme for each in registry.page(None, 9)] == ["reference"]


def test_channel_is_kept_and_goes_with_each_registration(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        one, two = registry.add([spec("one", channel="alerts.eu"), spec("two")], at(1), 1)
        assert (one.channel, two.channel) == ("alerts.eu", None)
        assert registry.replace(spec("one"), at(5), 2).channel is None
        assert registry.replace(spec("two", channel="\u00e9"), at(6), 3).channel == "\u00e9"
    with closing(open_registry()) as registry:
        assert [each.channel for each in expanded(registry.registrations())] == [
            "alerts.eu",
            None,
            None,
            "\u00e9",
        ]


def test_identity_stays(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        identity = registry.identity
    with closing(open_registry()) as registry:
        assert registry.identity == identity
    assert len(identity) == 16


def test_replacement_changes_over_at_one_position(registry: Registry) -> None:
    (old,) = registry.add([spec("alerts", "a = 1")], at(100), 1)
    new = registry.replace(spec("alerts", "a = 2", expires_at_us=9), at(250), 2)
    assert (new.since, new.until, new.filter, new.expires_at_us) == (250, None, "a = 2", 9)
    assert new.number > old.number
    ended, current = expanded(registry.registrations())
    assert (ended.number, ended.since, ended.until, ended.removed) == (old.number, 100, 250, False)
    assert current == new == registry.get("alerts")
    assert registry.count() == 1


def test_removed_subscription_is_gone_at_once_and_its_end_is_known(registry: Registry) -> None:
    registry.add([spec("a"), spec("b"), spec("c")], at(10), 1)
    ended = registry.remove(["c", "nobody", "a", "c"], at(30), 2)
    assert [(old.id, old.until, old.removed) for old in ended] == [("c", 30, True), ("a", 30, True)]
    assert [r.id for r in registry.page(None, 10)] == ["b"]
    assert registry.count() == 1
    with pytest.raises(NotFound):
        registry.get("a")
    assert [(r.id, r.until, r.removed) for r in expanded(registry.registrations())] == [
        ("a", 30, True),
        ("b", None, False),
        ("c", 30, True),
    ]


def test_id_can_be_used_again_and_its_number_cannot(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        (first,) = registry.add([spec("a")], at(1), 1)
        registry.remove(["a"], at(2), 1)
        registry.forget([first.number])
        assert list(registry.registrations()) == []
    with closing(open_registry()) as registry:
        (second,) = registry.add([spec("a")], at(3), 1)
        assert second.number > first.number


def test_expired_subscriptions_end_when_their_time_has_come(registry: Registry) -> None:
    registry.add([spec("never"), spec("soon", expires_at_us=50), spec("later", expires_at_us=51)], at(1), 1)
    assert registry.remove_expired(must_not_be_called, 49) == []
    assert [(r.id, r.until) for r in expanded(registry.remove_expired(at(7), 50))] == [("soon", 7)]
    assert registry.remove_expired(must_not_be_called, 50) == []
    registry.replace(spec("later", expires_at_us=100), at(8), 2)
    assert registry.remove_expired(must_not_be_called, 60) == []
    assert [r.id for r in registry.page(None, 10)] == ["later", "never"]


def test_left_over_live_subscriptions_end_together(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        live = registry.add([spec(durable=False), spec("kept"), spec(durable=False)], at(1), 1)
    with closing(open_registry()) as registry:
        ended = registry.remove_live(at(5), 2)
        assert [(r.id, r.until, r.removed) for r in ended] == [
            (live[0].id, 5, True),
            (live[2].id, 5, True),
        ]
        assert registry.remove_live(must_not_be_called, 3) == []
        assert [r.id for r in registry.page(None, 10)] == ["kept"]


def test_ids_are_made_where_none_is_given(registry: Registry) -> None:
    made = registry.add([spec() for _ in range(100)] + [spec(durable=False) for _ in range(100)], at(1), 1)
    assert len({r.id for r in made}) == 200
    assert all(r.id.startswith("sub-") and len(r.id) == 16 and r.durable for r in made[:100])
    assert all(r.id.startswith("live-") and len(r.id) == 17 and not r.durable for r in made[100:])


@pytest.mark.parametrize(
    "bad", ["", "-a", ".a", "a b", "a/b", "a\n", "ä", "a" * 129, "live-abc", "a:1", "a\x00", "٣"]
)
def test_unusable_ids_are_refused(registry: Registry, bad: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        registry.add([spec("good"), spec(bad)], must_not_be_called, 1)
    assert caught.value.field == "id"
    assert registry.version == registry.count() == 0


@pytest.mark.parametrize("good", ["a", "9", "A.b_c~d-e", "a" * 128, "alive-1", "Live-1", "sub-x"])
def test_usable_ids_are_taken_as_they_are(registry: Registry, good: str) -> None:
    assert registry.add([spec(good)], at(1), 1)[0].id == registry.get(good).id == good


def test_batch_with_a_taken_id_adds_nothing(registry: Registry) -> None:
    registry.add([spec("a")], at(1), 1)
    for batch in ([spec("b"), spec("a")], [spec("b"), spec("c"), spec("b")]):
        with pytest.raises(Conflict) as caught:
            registry.add(batch, must_not_be_called, 1)
        assert caught.value.field == "id"
    assert (registry.version, registry.count()) == (1, 1)
    assert len(list(registry.registrations())) == 1


def test_limit_on_subscriptions_counts_those_in_effect(registry: Registry) -> None:
    registry.add([spec() for _ in range(19_999)], at(1), 1)
    with pytest.raises(TooManySubscriptions) as caught:
        registry.add([spec(), spec()], must_not_be_called, 1)
    assert caught.value.details["limit"] == 20_000
    registry.add([spec("last")], at(1), 1)
    registry.replace(spec("last", "b = 2"), at(2), 1)
    with pytest.raises(TooManySubscriptions):
        registry.add([spec()], must_not_be_called, 1)
    registry.remove(["last"], at(3), 1)
    registry.add([spec()], at(4), 1)
    assert registry.count() == 20_000


def test_mailboxes_of_other_sites_are_neither_counted_nor_listed(open_registry: OpenAgain) -> None:
    site = "site~lyon~0123456789abcdef"
    with closing(open_registry()) as registry:
        registry.add([spec(name) for name in ("rhone", "site", "siteX", "sitz")], at(1), 1)
        registry.add([spec(site, scheme="encoded")], at(2), 2)
        registry.replace(spec(site, scheme="encoded"), at(3), 3)
        with pytest.raises(InvalidRequest, match="site~"):
            registry.add([spec("site~mine")], at(4), 4)
        with pytest.raises(InvalidRequest, match="site~"):
            registry.add([spec("mine", scheme="encoded")], at(4), 4)
        assert [each.id for each in registry.page(None, 3)] == ["rhone", "site", "siteX"]
        assert [each.id for each in registry.page("siteX", 3)] == ["sitz"]
    with closing(open_registry()) as registry:
        assert registry.count() == 4
        assert registry.get(site).since == 3
        registry.remove([site, "site"], at(5), 5)
        assert registry.count() == 3


def test_replacing_needs_an_existing_subscription_of_the_same_kind(registry: Registry) -> None:
    registry.add([spec("a")], at(1), 1)
    (live,) = registry.add([spec(durable=False)], at(1), 1)
    with pytest.raises(NotFound):
        registry.replace(spec("b"), must_not_be_called, 1)
    with pytest.raises(InvalidRequest):
        registry.replace(spec(None), must_not_be_called, 1)
    with pytest.raises(Conflict):
        registry.replace(spec("a", durable=False), must_not_be_called, 1)
    assert registry.replace(spec(live.id, "b = 2", durable=False), at(2), 1).filter == "b = 2"
    assert registry.version == 3


def test_version_rises_by_one_with_each_change_and_never_otherwise(registry: Registry) -> None:
    asked: list[int] = []

    def position(version: int) -> int:
        asked.append(version)
        assert registry.version == version - 1
        return 10 * version

    registry.add([spec("a"), spec("b", expires_at_us=5), spec(durable=False)], position, 1)
    registry.replace(spec("a", "b = 2"), position, 1)
    registry.add([], must_not_be_called, 1)
    registry.remove([], must_not_be_called, 1)
    registry.remove(["nobody"], must_not_be_called, 1)
    registry.remove_expired(position, 5)
    registry.remove_live(position, 5)
    registry.forget([1])
    registry.remove(["a"], position, 1)
    assert asked == [1, 2, 3, 4, 5]
    assert registry.version == 5
    assert registry.count() == 0


def test_failing_position_changes_nothing(registry: Registry) -> None:
    registry.add([spec("a", expires_at_us=1), spec(durable=False)], at(1), 1)
    before = list(registry.registrations())

    def fail(version: int) -> int:
        raise RuntimeError("no position")

    changes: list[Callable[[], object]] = [
        lambda: registry.add([spec("b")], fail, 1),
        lambda: registry.replace(spec("a", "b = 2"), fail, 1),
        lambda: registry.remove(["a"], fail, 1),
        lambda: registry.remove_expired(fail, 1),
        lambda: registry.remove_live(fail, 1),
    ]
    for change in changes:
        with pytest.raises(RuntimeError, match="no position"):
            change()
        assert registry.version == 1
        assert list(registry.registrations()) == before
    (added,) = registry.add([spec("b")], at(2), 1)
    assert (added.version, registry.count()) == (2, 3)


def test_changes_tell_what_happened_after_a_version(registry: Registry) -> None:
    a, b = registry.add([spec("a"), spec("b")], at(10), 1)
    new_a = registry.replace(spec("a", "b = 2"), at(20), 1)
    (c,) = registry.add([spec("c")], at(30), 1)
    registry.remove(["b", "c"], at(40), 1)
    full = registry.changes(0)
    assert full.version == 4
    assert [r.number for r in full.added] == [a.number, b.number, new_a.number, c.number]
    assert full.ended == ((a.number, 20), (b.number, 40), (c.number, 40))
    assert [(r.id, r.since, r.until) for r in expanded(full.added)] == [
        ("a", 10, 20),
        ("b", 10, 40),
        ("a", 20, None),
        ("c", 30, 40),
    ]
    later = registry.changes(2)
    assert [r.number for r in later.added] == [c.number]
    assert later.ended == ((b.number, 40), (c.number, 40))
    assert registry.changes(4) == Changes(4, (), ())


def test_following_the_changes_gives_what_is_in_effect(registry: Registry) -> None:
    followed: dict[int, str] = {}
    version = 0
    for step in range(60):
        registry.add([spec(f"s{step}-{i}") for i in range(3)], at(step), step)
        if step % 3 == 0:
            registry.replace(spec(f"s{step}-0", f"x = {step}"), at(step), step)
        if step % 4 == 0:
            registry.remove([f"s{step // 2}-1", f"s{step}-2"], at(step), step)
        if step % 5 == 0:
            changes = registry.changes(version)
            followed.update({r.number: r.filter for r in changes.added})
            for number, _ in changes.ended:
                del followed[number]
            version = changes.version
            assert version == registry.version
            assert followed == {r.number: r.filter for r in registry.page(None, 10_000)}


def test_forgetting_drops_ended_registrations_only(registry: Registry) -> None:
    a, b = registry.add([spec("a"), spec("b")], at(1), 1)
    registry.remove(["a"], at(2), 1)
    registry.forget([a.number, b.number, 12345])
    assert list(registry.registrations()) == [b]
    assert registry.version == 2


def test_pages_are_ordered_by_id_and_go_on_after_one(registry: Registry) -> None:
    registry.add([spec(id_) for id_ in ("b", "B", "a", "c", "a1", "9")], at(1), 1)
    assert [r.id for r in registry.page(None, 10)] == ["9", "B", "a", "a1", "b", "c"]
    assert [r.id for r in registry.page(None, 2)] == ["9", "B"]
    assert [r.id for r in registry.page("B", 2)] == ["a", "a1"]
    assert [r.id for r in registry.page("aa", 10)] == ["b", "c"]
    assert registry.page("c", 10) == []


def test_everything_is_there_after_reopening(open_registry: OpenAgain) -> None:
    with closing(open_registry()) as registry:
        registry.add([spec("a", expires_at_us=5), spec("b"), spec(durable=False)], at(1), 1)
        registry.replace(spec("b", "b = 2"), at(2), 1)
        registry.remove(["a"], at(3), 1)
        before = (registry.version, registry.count(), list(registry.registrations()), registry.changes(1))
    with closing(open_registry()) as registry:
        after = (registry.version, registry.count(), list(registry.registrations()), registry.changes(1))
    assert after == before


def test_ten_thousand_are_added_in_one_change(registry: Registry) -> None:
    made = registry.add([spec(f"s{n:05d}", f"n = {n}") for n in range(10_000)], at(5), 1)
    assert [r.id for r in made] == [f"s{n:05d}" for n in range(10_000)]
    assert {r.version for r in made} == {1}
    assert list(registry.registrations()) == made
    assert registry.count() == 10_000
    assert registry.page("s09998", 10) == made[-1:]


def test_threads_get_versions_without_gap_or_double(registry: Registry) -> None:
    made: list[tuple[int, int]] = []

    def work(worker: int) -> None:
        for n in range(20):
            (r,) = registry.add([spec(f"w{worker}-{n}")], lambda version: version * 10, 1)
            made.append((r.version, r.since))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [(version, version * 10) for version in range(1, 81)]


def test_closed_registry_is_unavailable(registry: Registry) -> None:
    registry.close()
    registry.close()
    with pytest.raises(Unavailable):
        registry.add([spec("a")], must_not_be_called, 1)
    with pytest.raises(Unavailable):
        registry.page(None, 1)
