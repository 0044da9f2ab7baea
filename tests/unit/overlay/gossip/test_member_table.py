from random import Random

from hypothesis import given, strategies as st

from culver.overlay.gossip.gossip_messages import FactsNews, MemberFacts, MemberStatus, News, StatusNews
from culver.overlay.gossip.member_table import MemberTable
from culver.overlay.site_keys import site_key

A, B, C = (site_key(name, bytes(8)) for name in "abc")
ALIVE, SUSPECT, DEAD, LEFT = MemberStatus

keys = st.sampled_from((A, B, C))
statuses = st.builds(StatusNews, keys, st.integers(0, 3), st.sampled_from(MemberStatus))
facts = st.builds(
    MemberFacts, st.integers(0, 3), st.just(()), st.dictionaries(st.just("load"), st.floats(0, 1), max_size=1)
)
some_news = st.lists(st.one_of(statuses, st.builds(FactsNews, keys, st.integers(0, 3), facts)), max_size=12)


def table_of(news: list[News]) -> MemberTable:
    table = MemberTable()
    for each in news:
        table.merge(each, 0.0)
    return table


def view(table: MemberTable) -> dict[str, tuple[int, MemberStatus, MemberFacts | None]]:
    return {record.key: (record.incarnation, record.status, record.facts) for record in table.records()}


@given(some_news, st.randoms(use_true_random=False))
def test_merging_in_any_order_and_any_number_of_times_gives_the_same_table(
    news: list[News], random: Random
) -> None:
    again = news + [each for each in news if random.random() < 0.5]
    random.shuffle(again)
    one, other = table_of(news), table_of(again)
    assert view(one) == view(other)
    assert one.sums(64) == other.sums(64)
    assert one.living == other.living == sum(record.is_living for record in one.records())


@given(some_news)
def test_only_what_is_news_changes_the_table(news: list[News]) -> None:
    table = MemberTable()
    for each in news:
        expected = table.is_news(each)
        assert (table.merge(each, 0.0) is not None) == expected
        assert table.merge(each, 0.0) is None


def test_a_higher_incarnation_wins_over_any_status() -> None:
    table = table_of([StatusNews(A, 5, DEAD), StatusNews(A, 6, ALIVE)])
    assert view(table)[A][:2] == (6, ALIVE)


def test_at_equal_incarnations_the_worse_status_wins_and_leaving_over_all() -> None:
    assert view(table_of([StatusNews(A, 5, DEAD), StatusNews(A, 5, SUSPECT)]))[A][1] is DEAD
    assert view(table_of([StatusNews(A, 5, LEFT), StatusNews(A, 5, DEAD)]))[A][1] is LEFT


def test_facts_win_by_their_version_whatever_the_incarnation() -> None:
    table = table_of([FactsNews(A, 6, MemberFacts(2)), FactsNews(A, 5, MemberFacts(3))])
    assert view(table)[A] == (6, ALIVE, MemberFacts(3))


def test_old_news_does_not_revive_a_forgotten_member() -> None:
    table = table_of([FactsNews(A, 5, MemberFacts(2)), StatusNews(A, 5, DEAD)])
    assert table.forget(99.0, 100.0, 50.0) == []
    assert table.forget(100.0, 100.0, 50.0) == [A]
    assert view(table) == {}
    assert table.merge(FactsNews(A, 5, MemberFacts(9)), 101.0) is None
    assert view(table) == {}


def test_a_forgotten_member_comes_back_with_a_higher_incarnation() -> None:
    table = table_of([StatusNews(A, 5, DEAD)])
    table.forget(100.0, 100.0, 50.0)
    table.merge(FactsNews(A, 6, MemberFacts(2)), 101.0)
    assert view(table)[A] == (6, ALIVE, MemberFacts(2))


def test_a_tombstone_disappears_in_the_end() -> None:
    table = table_of([StatusNews(A, 5, DEAD)])
    table.forget(150.0, 100.0, 50.0)
    assert len(table) == 0


def test_a_suspicion_does_not_count_in_check_sums_and_a_death_does() -> None:
    table = table_of([StatusNews(A, 5, ALIVE), StatusNews(B, 5, ALIVE)])
    before = table.sums(64)
    table.merge(StatusNews(A, 5, SUSPECT), 1.0)
    assert table.sums(64) == before
    table.merge(StatusNews(A, 5, DEAD), 2.0)
    assert table.sums(64) == table_of([StatusNews(B, 5, ALIVE)]).sums(64)


def test_equal_changes_of_two_members_do_not_cancel_in_folded_check_sums() -> None:
    one = table_of([StatusNews(A, 5, ALIVE), StatusNews(B, 5, ALIVE)])
    other = table_of([StatusNews(A, 6, ALIVE), StatusNews(B, 6, ALIVE)])
    assert one.sums(1) != other.sums(1)
