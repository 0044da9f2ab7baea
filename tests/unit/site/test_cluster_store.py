"""Claims and predicates of clusters survive on disk, and what is damaged is named and not used."""

import binascii
from pathlib import Path

import msgspec
import pytest

from culver.overlay import MemberClaim
from culver.site.wide_area.routing.cluster_store import ClusterStore
from support.linked_nodes import BONN, EVERYTHING, LYON, predicate

CLAIMS = (
    MemberClaim(LYON, 8, 7, 512, True, 2, 40),
    MemberClaim(BONN, 3, 0, 40, False, 1, 0, since=700, leaving=2, missing_from=5, reason="lost"),
)


@pytest.fixture
def store(tmp_path: Path) -> ClusterStore:
    made = ClusterStore(tmp_path)
    assert made.read() == ((), 0, {})
    return made


def test_what_is_written_is_read_again(store: ClusterStore, tmp_path: Path) -> None:
    store.write_claims(CLAIMS[:1], 2)
    store.write_claims(CLAIMS, 4)
    store.write_predicate(LYON, 7, EVERYTHING)
    store.write_predicate(LYON, 8, predicate(3))
    store.write_predicate(BONN, 9, EVERYTHING)
    assert ClusterStore(tmp_path).read() == (CLAIMS, 4, {LYON: (8, predicate(3)), BONN: (9, EVERYTHING)})


def test_claims_of_a_version_that_stored_no_number_of_clusters_are_read(
    store: ClusterStore, tmp_path: Path
) -> None:
    body = b'{"claims":' + msgspec.json.encode(CLAIMS) + b"}"
    (tmp_path / "claims.json").write_bytes(b"%08x " % binascii.crc32(body) + body)
    assert store.read() == (CLAIMS, 0, {})
    assert store.damages == []


def test_removed_predicate_is_gone(store: ClusterStore, tmp_path: Path) -> None:
    store.write_predicate(LYON, 7, EVERYTHING)
    store.write_predicate(LYON, 0, None)
    store.write_predicate(BONN, 0, None)
    assert ClusterStore(tmp_path).read().predicates == {}
    assert store.damages == []


@pytest.mark.parametrize("place", [0, 9, -3])
def test_damaged_claims_are_named_set_aside_and_not_used(
    store: ClusterStore, tmp_path: Path, place: int
) -> None:
    store.write_claims(CLAIMS, 4)
    store.write_predicate(LYON, 7, EVERYTHING)
    path = tmp_path / "claims.json"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    again = ClusterStore(tmp_path)
    assert again.read() == ((), 0, {LYON: (7, EVERYTHING)})
    (damage,) = again.damages
    assert f"{path} was damaged" in damage
    assert (tmp_path / "claims.json.damaged").exists()
    assert ClusterStore(tmp_path).read().claims == ()


def test_damaged_predicate_is_named_set_aside_and_not_used(store: ClusterStore, tmp_path: Path) -> None:
    store.write_predicate(LYON, 7, EVERYTHING)
    store.write_predicate(BONN, 7, EVERYTHING)
    path = tmp_path / "members" / f"{LYON}.json"
    path.write_bytes(path.read_bytes()[:-4])
    again = ClusterStore(tmp_path)
    assert again.read().predicates == {BONN: (7, EVERYTHING)}
    assert len(again.damages) == 1
