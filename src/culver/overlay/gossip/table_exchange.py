"""How two members make their tables equal, without sending what both have.

    one     TableDigest: check sums of the buckets of its table        ->
            <-  TablePiece for each few buckets that differ: all living members there     the other
    one     TablePiece: what it knows better, the dead among them      ->

An exchange heals whatever the news has missed, and joins the halves of a healed partition. Who died or left is told
only to one that believes it alive; so what all have forgotten stays forgotten.
"""

from collections.abc import Iterable, Iterator

from culver.overlay.gossip.gossip_messages import (
    BUCKETS,
    MOST_NEWS_IN_PIECE,
    SUM_BYTES,
    FactsNews,
    MemberStatus,
    News,
    StatusNews,
    TablePiece,
    encoded_size,
)
from culver.overlay.gossip.member_table import MemberRecord, MemberTable, news_of

_MEMBERS_PER_BUCKET = 8
_MOST_OWN_NEWS = MOST_NEWS_IN_PIECE - 1  # which leaves room for an introduction


def sums_of(table: MemberTable) -> bytes:
    """The check sums of a TableDigest: more of them, the larger the table."""
    count = 1
    while count < BUCKETS and count * _MEMBERS_PER_BUCKET < table.living:
        count *= 2
    return b"".join(each.to_bytes(SUM_BYTES, "big") for each in table.sums(count))


def are_sums(sums: bytes) -> bool:
    """Tells whether these are check sums of 1, 2, 4 ... `BUCKETS` buckets."""
    count, rest = divmod(len(sums), SUM_BYTES)
    return rest == 0 and 0 < count <= BUCKETS and count & (count - 1) == 0


def pieces_where_different(table: MemberTable, sums: bytes, piece_bytes: int) -> Iterator[TablePiece]:
    """Yields the buckets of the table that cannot be equal to those of the check sums' sender."""
    count = len(sums) // SUM_BYTES
    theirs = [
        int.from_bytes(sums[place : place + SUM_BYTES], "big") for place in range(0, len(sums), SUM_BYTES)
    ]
    different = [one != other for one, other in zip(theirs, table.sums(count), strict=True)]
    buckets, news, room = bytearray(), list[News](), piece_bytes
    for bucket in range(BUCKETS):
        if not different[bucket % count]:
            continue
        found = [news_of(record) for record in table.in_bucket(bucket)][:_MOST_OWN_NEWS]
        size = sum(map(encoded_size, found))
        if buckets and (size > room or len(news) + len(found) > _MOST_OWN_NEWS):
            yield TablePiece(bytes(buckets), tuple(news))
            buckets, news, room = bytearray(), [], piece_bytes
        buckets.append(bucket)
        news += found
        room -= size
    if buckets:
        yield TablePiece(bytes(buckets), tuple(news))


def better_known(table: MemberTable, piece: TablePiece, piece_bytes: int) -> Iterator[TablePiece]:
    """Yields what the table knows better than a piece, once the piece is merged into it."""
    answers: list[News] = []
    said = set[str]()
    for news in piece.news:
        said.add(news.key)
        record = table.get(news.key)
        if record is not None and _beats(record, news):
            answers.append(news_of(record))
    for bucket in piece.buckets:
        answers += [news_of(record) for record in table.in_bucket(bucket) if record.key not in said]
    return _divided(answers, piece_bytes)


def _beats(record: MemberRecord, news: News) -> bool:
    if record.incarnation != news.incarnation:
        return record.incarnation > news.incarnation
    if isinstance(news, StatusNews):
        return not record.is_living and news.status < MemberStatus.DEAD
    assert isinstance(news, FactsNews)
    if not record.is_living:
        return True
    return record.facts is not None and record.facts.version > news.facts.version


def _divided(answers: Iterable[News], piece_bytes: int) -> Iterator[TablePiece]:
    part, room = list[News](), piece_bytes
    for news in answers:
        size = encoded_size(news)
        if part and (size > room or len(part) == MOST_NEWS_IN_PIECE):
            yield TablePiece(b"", tuple(part))
            part, room = [], piece_bytes
        part.append(news)
        room -= size
    if part:
        yield TablePiece(b"", tuple(part))
