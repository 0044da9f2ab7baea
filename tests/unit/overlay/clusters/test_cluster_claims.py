"""The ledger of claims: what is stored, answered and told to carriers."""

from culver.overlay.clusters.cluster_claims import ClaimLedger
from culver.overlay.clusters.cluster_instructions import MemberClaim
from culver.overlay.clusters.cluster_messages import Claim, ClaimAnswer, TermsMember
from support.linked_nodes import BONN, LYON

MAILBOXES = dict.fromkeys(range(4))


def store(ledger: ClaimLedger, position: int) -> set[int]:
    """Store what is wanted; returns the clusters whose terms change."""
    found = ledger.next_store(position, MAILBOXES)
    assert found is not None
    change = ledger.stored(found[0].number)
    assert change is not None
    assert change.clusters == found[1]
    return set(change.clusters)


def claimed(version: int = 1, cluster: int = 0, *, active: bool = True, position: int = 5) -> ClaimLedger:
    ledger = ClaimLedger()
    assert not ledger.want(LYON, Claim(version, cluster, active), None)
    store(ledger, position)
    return ledger


def test_a_first_claim_is_in_effect_from_the_end_of_the_log_on() -> None:
    ledger = claimed()
    assert ledger.answer(LYON) == ClaimAnswer(1, 0, 5, 5, 0, None, "")
    assert ledger.members(0) == (TermsMember(LYON, 1, 5, 5, 0),)
    assert ledger.want(LYON, Claim(1, 0, active=True), None)


def test_a_claim_waits_for_the_mailbox_of_its_cluster() -> None:
    ledger = ClaimLedger()
    ledger.want(LYON, Claim(1, 7, active=True), None)
    assert ledger.needed_clusters() == {7}
    assert ledger.next_store(5, {}) is None
    assert ledger.next_store(5, {7: None}) is not None


def test_one_store_is_under_way_at_a_time_and_a_failed_one_comes_again() -> None:
    ledger = ClaimLedger()
    ledger.want(LYON, Claim(1, 0, active=True), None)
    first = ledger.next_store(5, MAILBOXES)
    assert first is not None
    ledger.want(BONN, Claim(1, 0, active=True), None)
    assert ledger.next_store(6, MAILBOXES) is None
    ledger.failed(first[0].number)
    assert ledger.next_store(6, MAILBOXES) == first
    assert ledger.stored(first[0].number + 9) is None
    assert ledger.stored(first[0].number) is not None
    assert list(ledger.claims) == [LYON]
    store(ledger, 7)
    assert list(ledger.claims) == [LYON, BONN]


def test_a_new_version_names_the_one_before_it() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(3, 0, active=True), None)
    assert store(ledger, 9) == {0}
    assert ledger.answer(LYON) == ClaimAnswer(3, 1, 9, 5, 0, None, "")


def test_a_late_claim_of_an_older_version_is_answered_with_the_newer_one() -> None:
    ledger = claimed(version=3)
    assert ledger.want(LYON, Claim(2, 0, active=True), None)
    assert ledger.next_store(9, MAILBOXES) is None


def test_a_claim_that_was_overtaken_changes_nothing_and_is_answered_with_what_holds() -> None:
    ledger = claimed()
    assert not ledger.want(LYON, Claim(1, 2, active=True, number=9), None)
    store(ledger, 5)
    assert ledger.want(LYON, Claim(1, 1, active=True, number=8), None)
    assert ledger.next_store(6, MAILBOXES) is None
    assert ledger.answer(LYON) == ClaimAnswer(1, 0, 5, 5, 2, None, "", number=9)


def test_a_claim_to_the_present_cluster_takes_back_one_that_waits() -> None:
    ledger = claimed()
    assert not ledger.want(LYON, Claim(1, 2, active=True, number=8), None)
    assert ledger.want(LYON, Claim(1, 0, active=True, number=9), None)
    assert ledger.next_store(6, MAILBOXES) is None
    assert ledger.answer(LYON) == ClaimAnswer(1, 0, 5, 5, 0, None, "", number=9)


def test_a_claim_that_comes_while_another_is_stored_is_answered_after_it() -> None:
    ledger = claimed()
    assert not ledger.want(LYON, Claim(2, 0, active=True, number=8), None)
    first = ledger.next_store(6, MAILBOXES)
    assert first is not None
    assert not ledger.want(LYON, Claim(2, 0, active=True, number=7), None)
    assert not ledger.want(LYON, Claim(2, 3, active=True, number=9), None)
    ledger.stored(first[0].number)
    assert ledger.answer(LYON).number == 8
    store(ledger, 7)
    assert (ledger.answer(LYON).number, ledger.answer(LYON).cluster) == (9, 3)


def test_a_member_that_moves_is_in_both_clusters_until_it_has_left() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(1, 2, active=True), None)
    assert store(ledger, 9) == {0, 2}
    assert ledger.members(0) == (TermsMember(LYON, 1, 5, 5, 9),)
    assert ledger.members(2) == (TermsMember(LYON, 1, 5, 9, 0),)
    ledger.finish(LYON, 0)
    assert store(ledger, 12) == {0, 2}
    assert ledger.members(0) == ()
    assert ledger.members(2) == (TermsMember(LYON, 1, 5, 5, 0),)


def test_a_move_before_anything_is_published_is_over_at_once() -> None:
    for position in (0, 5):
        ledger = claimed(position=position)
        ledger.want(LYON, Claim(1, 1, active=True), None)
        assert store(ledger, position) == {0, 1}
        assert ledger.members(0) == ()
        assert ledger.members(1) == (TermsMember(LYON, 1, position, position, 0),)


def test_a_move_that_an_earlier_version_began_in_an_empty_log_is_over() -> None:
    ledger = ClaimLedger()
    ledger.restore([MemberClaim(LYON, 1, 0, 0, True, 1, 0, since=0, leaving=2)])
    assert ledger.claims[LYON].leaving is None
    assert ledger.members(2) == ()
    ledger.restore([MemberClaim(LYON, 1, 0, 0, True, 1, 0, since=7, leaving=2)])
    assert ledger.claims[LYON].leaving == 2


def test_a_further_move_waits_and_a_new_version_does_not() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(1, 2, active=True), None)
    store(ledger, 9)
    assert ledger.want(LYON, Claim(1, 0, active=True), None)  # the answer names cluster 2
    ledger.want(LYON, Claim(2, 3, active=True), None)
    store(ledger, 11)
    assert ledger.answer(LYON).version == 2
    assert ledger.answer(LYON).cluster == 2
    ledger.finish(LYON, 0)
    store(ledger, 12)
    assert not ledger.want(LYON, Claim(2, 3, active=True), None)
    store(ledger, 13)
    assert ledger.clusters() == {2: [LYON], 3: [LYON]}


def test_a_member_that_wants_nothing_needs_no_mailbox_and_moves_at_once() -> None:
    ledger = claimed(active=False)
    assert ledger.needed_clusters() == set()
    assert ledger.members(0) == ()
    ledger.want(LYON, Claim(1, 2, active=False), None)
    assert store(ledger, 9) == set()
    assert ledger.answer(LYON).cluster == 2
    ledger.want(LYON, Claim(2, 3, active=True), None)
    store(ledger, 10)
    assert ledger.members(3) == (TermsMember(LYON, 2, 10, 5, 0),)


def test_a_member_that_wants_nothing_any_more_leaves_at_once() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(1, 2, active=True), None)
    store(ledger, 9)
    ledger.want(LYON, Claim(2, 2, active=False), None)
    assert store(ledger, 11) == {0, 2}
    assert ledger.clusters() == {}


def test_a_dropped_member_may_claim_anew_and_hears_what_it_misses() -> None:
    ledger = claimed()
    ledger.drop(LYON)
    assert store(ledger, 9) == {0}
    assert not ledger.want(LYON, Claim(1, 0, active=True), (7, "forgotten"))
    store(ledger, 12)
    assert ledger.answer(LYON) == ClaimAnswer(1, 0, 12, 12, 0, 7, "forgotten")


def test_what_a_member_has_from_before_it_was_dropped_does_not_count() -> None:
    ledger = claimed()
    ledger.drop(LYON)
    store(ledger, 9)
    ledger.want(LYON, Claim(1, 0, active=True), None)
    store(ledger, 12)
    assert ledger.members(0) == (TermsMember(LYON, 1, 12, 12, 0),)


def test_a_member_that_is_dropped_while_it_is_stored_is_dropped_afterwards() -> None:
    ledger = ClaimLedger()
    ledger.want(LYON, Claim(1, 0, active=True), None)
    found = ledger.next_store(5, MAILBOXES)
    assert found is not None
    ledger.drop(LYON)
    ledger.stored(found[0].number)
    store(ledger, 6)
    assert not ledger.claims


def test_a_member_that_has_left_a_cluster_while_it_is_dropped_holds_up_nobody() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(1, 2, active=True, number=1), None)
    store(ledger, 9)
    ledger.drop(LYON)
    first = ledger.next_store(10, MAILBOXES)
    assert first is not None
    ledger.finish(LYON, 0)
    ledger.stored(first[0].number)
    ledger.want(BONN, Claim(1, 0, active=True), None)
    store(ledger, 11)
    assert list(ledger.claims) == [BONN]


def test_a_member_that_is_dropped_and_claims_before_that_is_stored_claims_anew() -> None:
    ledger = claimed()
    ledger.want(BONN, Claim(1, 0, active=True), None)
    first = ledger.next_store(6, MAILBOXES)
    assert first is not None
    ledger.drop(LYON)
    assert not ledger.holds(LYON)
    assert not ledger.want(LYON, Claim(1, 0, active=True, number=3), (2, "forgotten"))
    ledger.stored(first[0].number)
    store(ledger, 7)
    assert ledger.answer(LYON) == ClaimAnswer(1, 0, 7, 7, 0, 2, "forgotten", number=3)


def test_a_claim_to_the_cluster_that_is_being_stored_takes_back_one_that_waits() -> None:
    ledger = claimed()
    ledger.want(LYON, Claim(1, 2, active=True, number=8), None)
    first = ledger.next_store(6, MAILBOXES)
    assert first is not None
    ledger.want(LYON, Claim(1, 3, active=True, number=9), None)
    assert not ledger.want(LYON, Claim(1, 2, active=True, number=10), None)
    ledger.stored(first[0].number)
    assert ledger.next_store(7, MAILBOXES) is None


def test_restored_claims_are_in_effect() -> None:
    ledger = ClaimLedger()
    ledger.restore([MemberClaim(LYON, 3, 1, 9, True, 2, 5, since=9, leaving=0)])
    assert ledger.needed_clusters() == {0, 2}
    assert ledger.members(0) == (TermsMember(LYON, 3, 9, 5, 9),)
