"""The queue of recent changes, which ride on messages that are sent anyway.

Each piece of news is sent a limited number of times. What was sent least goes first, and of that the newest. Later
news of the same member replaces what it overtakes.
"""

import msgspec

from culver.overlay.gossip.gossip_messages import (
    MOST_NEWS,
    FactsNews,
    MemberStatus,
    News,
    StatusNews,
    encoded_size,
)

_MOST_TAKEN = MOST_NEWS - 2  # which leaves room for an introduction and an accusation


class _QueuedNews(msgspec.Struct, gc=False):
    news: News
    size: int
    times_sent: int = 0


class NewsQueue:
    """Holds, for each member, its facts and its status; suspicions of several accusers stand beside each other."""

    def __init__(self) -> None:
        # By the number of times that they were sent; in each, the newest stands last.
        self._levels: list[dict[int, _QueuedNews]] = [{}]
        self._of_member: dict[str, dict[int, _QueuedNews]] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return sum(map(len, self._of_member.values()))

    def add(self, news: News) -> None:
        of_member = self._of_member.setdefault(news.key, {})
        for number, queued in list(of_member.items()):
            if _overtakes(news, queued.news):
                del of_member[number], self._levels[queued.times_sent][number]
        self._numbers += 1
        queued = _QueuedNews(news, encoded_size(news))
        of_member[self._numbers] = self._levels[0][self._numbers] = queued

    def drop(self, key: str) -> None:
        """Drops all news of a member."""
        for number, queued in self._of_member.pop(key, {}).items():
            del self._levels[queued.times_sent][number]

    def take(self, room_bytes: int, most_times: int, but_not_of: str) -> list[News]:
        """Returns news of at most so many bytes, none of it about one member, and counts it as sent. News that was
        sent `most_times` is dropped."""
        if not self._of_member:
            return []
        chosen: list[tuple[int, _QueuedNews]] = []
        for level in self._levels:
            for number in reversed(level):
                queued = level[number]
                if queued.news.key == but_not_of:
                    continue
                room_bytes -= queued.size
                if room_bytes < 0 or len(chosen) == _MOST_TAKEN:
                    break
                chosen.append((number, queued))
            else:
                continue
            break
        for number, queued in chosen:
            self._count(number, queued, most_times)
        return [queued.news for _, queued in chosen]

    def _count(self, number: int, queued: _QueuedNews, most_times: int) -> None:
        del self._levels[queued.times_sent][number]
        queued.times_sent += 1
        if queued.times_sent >= most_times:
            of_member = self._of_member[queued.news.key]
            del of_member[number]
            if not of_member:
                del self._of_member[queued.news.key]
            return
        if queued.times_sent == len(self._levels):
            self._levels.append({})
        self._levels[queued.times_sent][number] = queued


def _overtakes(news: News, queued: News) -> bool:
    if isinstance(news, FactsNews):
        if isinstance(queued, FactsNews):
            return news.facts.version >= queued.facts.version
        return news.incarnation > queued.incarnation
    if (
        isinstance(queued, FactsNews)
        or not isinstance(news, StatusNews)
        or not isinstance(queued, StatusNews)
    ):
        return False
    if news.incarnation == queued.incarnation and news.status == queued.status == MemberStatus.SUSPECT:
        return news.accuser == queued.accuser
    return (news.incarnation, news.status) >= (queued.incarnation, queued.status)
