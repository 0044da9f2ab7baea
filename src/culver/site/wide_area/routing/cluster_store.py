"""The claims at a site, and the predicates of the others of its cluster, as files below `overlay/clusters`.

    claims.json              who gets this site's events, through which cluster, and from where on
    members/lyon~01...json   what lyon asks for

    8a0c44e1 {"claims": [...]}      the CRC-32 of what follows, and JSON

A file that is damaged is named, set aside, and not used. Without claims the members claim anew, and each announces
what it may miss. Without the predicate of a member the site asks for it again.
"""

import binascii
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from culver.disk import make_directory, sync_directory, write_whole
from culver.errors import InvalidFilter
from culver.matching import SitePredicate, read_predicate
from culver.overlay import MemberClaim, is_site_key

logger = logging.getLogger(__name__)

_CRC_CHARACTERS = 8
_SUFFIX = ".json"
_SET_ASIDE = ".damaged"

Content = TypeVar("Content")


class _Claims(msgspec.Struct, frozen=True):
    claims: tuple[MemberClaim, ...]
    clusters: int = 0


class _Predicate(msgspec.Struct, frozen=True):
    site: str
    version: int
    predicate: str


class StoredClusters(NamedTuple):
    """The claims and predicates that earlier runs have stored: `predicates` are (version, predicate) by site, and
    `clusters` is that of StoreClaims."""

    claims: tuple[MemberClaim, ...]
    clusters: int
    predicates: dict[str, tuple[int, SitePredicate]]


class ClusterStore:
    """One call at a time. Every call blocks, and raises OSError where the disk does not do what it should. What is
    written is on disk on return."""

    def __init__(self, directory: Path) -> None:
        self._claims = directory / f"claims{_SUFFIX}"
        self._members = directory / "members"
        self.damages: list[str] = []
        """Tells an operator, in sentences, which files were damaged."""

    def read(self) -> StoredClusters:
        make_directory(self._members)
        claims = self._read(self._claims, _Claims)
        predicates = {}
        for path in sorted(self._members.glob(f"*{_SUFFIX}")):
            content = self._read(path, _Predicate)
            if content is None:
                continue
            try:
                predicate = read_predicate(content.predicate)
            except InvalidFilter as exc:
                self._set_aside(path, exc.message)
                continue
            if is_site_key(content.site) and path == self._path_of(content.site):
                predicates[content.site] = content.version, predicate
        claims = claims or _Claims(())
        return StoredClusters(claims.claims, claims.clusters, predicates)

    def write_claims(self, claims: Sequence[MemberClaim], clusters: int) -> None:
        """Store all claims, in place of those of before."""
        _write(self._claims, _Claims(tuple(claims), clusters))

    def write_predicate(self, site: str, version: int, predicate: SitePredicate | None) -> None:
        """Store what a site asks for, or remove it where that is None."""
        path = self._path_of(site)
        if predicate is not None:
            _write(path, _Predicate(site, version, predicate.text))
            return
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)

    def _path_of(self, site: str) -> Path:
        return self._members / f"{site}{_SUFFIX}"

    def _read(self, path: Path, kind: type[Content]) -> Content | None:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        body = text[_CRC_CHARACTERS + 1 :]
        if text[: _CRC_CHARACTERS + 1] != _head(body):
            self._set_aside(path, "its checksum is wrong")
            return None
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as exc:
            self._set_aside(path, str(exc))
            return None

    def _set_aside(self, path: Path, reason: str) -> None:
        path.rename(path.with_name(path.name + _SET_ASIDE))
        text = f"{path} was damaged ({reason}) and is not used: members may announce gaps"
        logger.error("%s", text)
        self.damages.append(text)


def _write(path: Path, content: msgspec.Struct) -> None:
    body = msgspec.json.encode(content)
    write_whole(path, [_head(body), body], durable=True)


def _head(body: bytes) -> bytes:
    return b"%08x " % binascii.crc32(body)
