"""The checks that a message must pass before anything of it counts."""

from culver.overlay.gossip.gossip_messages import (
    BUCKETS,
    FactsNews,
    GossipMessage,
    MemberStatus,
    News,
    TableDigest,
    TablePiece,
    encoded_size,
)
from culver.overlay.gossip.gossip_settings import GossipSettings
from culver.overlay.gossip.member_table import MemberTable
from culver.overlay.gossip.table_exchange import are_sums
from culver.overlay.site_keys import is_site_key


class GossipChecks:
    """Compares messages with the table of the member that has received them."""

    def __init__(self, own_key: str, settings: GossipSettings, table: MemberTable) -> None:
        self._own_key = own_key
        self._settings = settings
        self._table = table

    def reason_to_refuse(self, source: str, message: GossipMessage) -> str | None:
        """Returns None if the message is acceptable as a whole."""
        if source == self._own_key:
            return "it claims to come from this member"
        news = message.news
        if self._table.get(source) is None and not any(_introduces(each, source) for each in news):
            return "its source is no known member and does not introduce itself"
        if isinstance(message, TableDigest) and not are_sums(message.sums):
            return "its check sums are no power of 2 in number"
        if isinstance(message, TablePiece) and any(bucket >= BUCKETS for bucket in message.buckets):
            return "it has buckets that no table has"
        strangers = set[str]()
        for each in news:
            reason = self._reason_against(each, strangers)
            if reason is not None:
                return reason
        if strangers and len(self._table) + len(strangers) > self._settings.most_members:
            return f"it brings more members than {self._settings.most_members}"
        return None

    def _reason_against(self, news: News, strangers: set[str]) -> str | None:
        settings, record = self._settings, self._table.get(news.key)
        if record is None:
            if not is_site_key(news.key):
                return "a member's key is not the key of a site"
            strangers.add(news.key)
        elif news.incarnation > record.incarnation + settings.most_incarnation_lead:
            return f"the incarnation of {news.key} is far above the known one"
        if not isinstance(news, FactsNews):
            if news.accuser and self._table.get(news.accuser) is None and not is_site_key(news.accuser):
                return "an accuser's key is not the key of a site"
            return None
        known = None if record is None else record.facts
        if known is not None and news.facts.version <= known.version:
            return None
        if encoded_size(news.facts) > settings.most_facts_bytes:
            return f"the facts of {news.key} have more than {settings.most_facts_bytes} bytes"
        return None


def _introduces(news: News, source: str) -> bool:
    return news.key == source and (
        isinstance(news, FactsNews) or news.status in (MemberStatus.ALIVE, MemberStatus.LEFT)
    )
