"""Events of other sites that match nothing here are counted by their origin."""

from culver.model import Event, Origin
from culver.site.wide_area.false_positives import FalsePositives
from support.notifications import make_notifications


def test_events_of_others_without_a_match_are_counted() -> None:
    counted = FalsePositives()
    lyon, bonn = Origin("lyon", 7), Origin("bonn", 8)
    counted.committed(10, [Event({}, {}, b"{}", origin) for origin in (None, lyon, lyon, bonn, None, bonn)])
    counted.accepted(make_notifications(0, 10, {}))
    assert counted.counts == {}
    # 11 matches something; 12 and 13 match nothing; 15 is not in the range yet.
    counted.accepted(make_notifications(10, 15, {1: [11], 4: [11, 14]}))
    assert counted.counts == {"lyon": 1, "bonn": 1}
    counted.accepted(make_notifications(15, 16, {4: [15]}))
    assert counted.counts == {"lyon": 1, "bonn": 1}
