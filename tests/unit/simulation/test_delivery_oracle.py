import pytest

from culver.channels.core.message_order import LostMessages
from culver.simulation import DeliveryOracle

C = b"news"
ANN = 0xA


class Story:
    """One steady subscriber, and publications of one publisher on one channel."""

    def __init__(self) -> None:
        self.oracle = DeliveryOracle(grace_seconds=5)
        self.oracle.joins("sue", C)
        self.oracle.is_steady("sue", C, now=0)

    def publish(self, *sequences: int, epoch: int = 1, now: float = 1, accepted: bool = True) -> None:
        for sequence in sequences:
            payload = self.payload(sequence, epoch)
            self.oracle.begins(C, payload, ANN, now)
            self.oracle.numbers(C, payload, epoch, sequence)
            if accepted:
                self.oracle.accepts(C, payload, now)

    def deliver(self, *sequences: int, epoch: int = 1) -> None:
        for sequence in sequences:
            self.oracle.delivers("sue", C, self.payload(sequence, epoch), now=2)

    def lose(self, first: int, last: int, epoch: int = 1) -> None:
        self.oracle.reports("sue", LostMessages(C, ANN, epoch, first, last))

    @staticmethod
    def payload(sequence: int, epoch: int) -> bytes:
        return b"%d.%d" % (epoch, sequence)

    def violations(self, now: float = 100) -> list[str]:
        return self.oracle.check(now)


def test_messages_that_arrive_once_and_in_order_are_as_promised() -> None:
    story = Story()
    story.publish(1, 2, 3)
    story.publish(1, epoch=2)
    story.deliver(1, 2, 3)
    story.deliver(1, epoch=2)
    assert story.violations() == []
    assert story.oracle.deliveries == 4
    assert story.oracle.slowest_delivery_seconds == 1


def test_a_message_that_neither_arrives_nor_is_reported_is_found_once_when_it_is_due() -> None:
    story = Story()
    story.publish(1, 2)
    story.deliver(2)
    assert story.violations(now=5.9) == []
    (text,) = story.violations(now=6)
    assert "never got b'1.1'" in text
    assert len(story.violations(now=7)) == 1


def test_a_message_in_a_reported_gap_is_no_violation() -> None:
    story = Story()
    story.publish(1, 2, 3, 4)
    story.deliver(1)
    story.lose(2, 3)
    story.deliver(4)
    assert story.violations() == []
    assert story.oracle.reported_losses == 2


def test_a_gap_of_another_epoch_or_channel_or_publisher_excuses_nothing() -> None:
    story = Story()
    story.publish(1)
    story.publish(1, epoch=2)
    story.deliver(1, epoch=2)
    story.lose(1, 1, epoch=3)
    assert any("never got b'1.1'" in text for text in story.violations())


def test_a_copy_is_found() -> None:
    story = Story()
    story.publish(1)
    story.deliver(1, 1)
    assert ["a second time" in text for text in story.violations()] == [True]


def test_messages_of_one_publisher_out_of_order_are_found() -> None:
    story = Story()
    story.publish(1, 2)
    story.deliver(2, 1)
    assert ["after (1, 2)" in text for text in story.violations()] == [True]
    story = Story()
    story.publish(1)
    story.publish(1, epoch=2)
    story.deliver(1, epoch=2)
    story.deliver(1)
    assert len(story.violations()) == 1


def test_a_publication_that_was_not_accepted_may_arrive_or_not() -> None:
    story = Story()
    story.publish(1, 2, accepted=False)
    story.deliver(2)
    assert story.violations() == []


def test_only_what_is_published_after_the_subscription_is_steady_is_promised() -> None:
    story = Story()
    story.oracle.joins("tom", C)
    story.publish(1, now=1)
    story.oracle.is_steady("tom", C, now=1.5)
    story.publish(2, now=2)
    story.deliver(1, 2)
    (text,) = story.violations()
    assert "tom (channel b'news') never got b'1.2'" in text


def test_what_was_under_way_when_a_subscriber_left_is_not_promised_and_may_come_until_it_has_left() -> None:
    story = Story()
    story.publish(1, 2, 3)
    story.oracle.leaves("sue", C, now=1.1)
    story.deliver(2)
    story.oracle.has_left("sue", C, now=3)
    assert story.violations() == []
    story.deliver(3)
    assert ["without a subscription" in text for text in story.violations()] == [True]


def test_what_was_due_before_a_subscriber_left_or_vanished_stays_promised() -> None:
    story = Story()
    story.publish(1, now=1)
    story.oracle.vanishes("sue", now=6)
    assert len(story.violations()) == 1
    story = Story()
    story.publish(1, now=1)
    story.oracle.vanishes("sue", now=5)
    assert story.violations() == []


def test_last_words_of_a_publisher_that_dies_are_counted_and_no_violation() -> None:
    story = Story()
    story.oracle = DeliveryOracle(grace_seconds=5, last_words_seconds=2)
    story.oracle.joins("sue", C)
    story.oracle.is_steady("sue", C, now=0)
    story.publish(1, now=1)
    story.publish(2, now=3)
    story.oracle.dies(ANN, now=4)
    (text,) = story.violations()
    assert "never got b'1.1'" in text
    assert story.oracle.unreported_last_words == 1


def test_what_nobody_published_is_found() -> None:
    story = Story()
    story.deliver(7)
    story.lose(1, 1)
    story.publish(1, 2)
    story.lose(2, 3)
    story.lose(2, 1)
    assert ["nobody" in text for text in story.violations(now=0)] == [True] * 4


def test_a_loss_that_is_no_loss_is_found() -> None:
    story = Story()
    story.publish(1, 2)
    story.deliver(1)
    story.lose(1, 2)
    assert ["although b'1.1'" in text for text in story.violations()] == [True]
    story.deliver(2)
    assert "after it was reported as lost" in story.violations()[-1]


def test_a_publication_keeps_its_number_when_it_is_sent_again() -> None:
    story = Story()
    story.publish(1)
    story.oracle.numbers(C, b"1.1", 1, 1)
    assert story.oracle.violations == []
    story.oracle.numbers(C, b"1.1", 1, 2)
    assert ["is sent again under the number (1, 2)" in text for text in story.oracle.violations] == [True]


def test_payloads_must_be_unique() -> None:
    story = Story()
    story.publish(1)
    with pytest.raises(ValueError, match="published twice"):
        story.publish(1)


def test_a_pattern_is_a_subscription_of_its_own() -> None:
    story = Story()
    story.oracle.joins("sue", b"n*", is_pattern=True)
    story.oracle.is_steady("sue", b"n*", 0, is_pattern=True)
    story.publish(1, 2, 3)
    story.deliver(1, 2, 3)
    story.oracle.delivers("sue", C, b"1.1", now=2, pattern=b"n*")
    story.lose(2, 2)
    assert story.oracle.violations == []
    (text,) = story.violations()
    assert "sue (pattern b'n*') never got b'1.3'" in text
    story.oracle.delivers("sue", b"other", b"x", now=2, pattern=b"n*")
    assert "nobody sent there" in story.violations()[-1]


@pytest.mark.parametrize(
    ("died_at", "home_lost_at", "back_at", "is_excused"),
    [
        (2.0, 3.0, 4.0, True),
        # The publisher would have stored its number again, or the subscriber was back before, or it was never away.
        (None, 3.0, 4.0, False),
        (3.0, 2.0, 4.0, False),
        (2.0, 4.0, 3.0, False),
        (2.0, 3.0, None, False),
    ],
)
def test_nobody_can_tell_of_a_loss_after_the_publisher_and_then_the_home_died(
    died_at: float | None, home_lost_at: float, back_at: float | None, is_excused: bool
) -> None:
    story = Story()
    story.oracle.confirms("sue", C, now=0)
    story.publish(1, now=1)
    if died_at is not None:
        story.oracle.dies(ANN, died_at)
    story.oracle.loses_homes(lambda channel: channel == C, home_lost_at)
    if back_at is not None:
        story.oracle.confirms("sue", C, back_at)
    assert (story.violations() == []) is is_excused
    assert story.oracle.unreported_last_words == is_excused


def test_time_in_which_a_publisher_was_mute_does_not_count_for_its_last_words() -> None:
    story = Story()
    story.oracle = DeliveryOracle(grace_seconds=5, last_words_seconds=2)
    story.oracle.joins("sue", C)
    story.oracle.is_steady("sue", C, now=0)
    story.publish(1, now=1)
    story.publish(2, now=4)
    story.oracle.mutes(lambda publisher, channel: (publisher, channel) == (ANN, C), 5, 9)
    story.oracle.mutes(lambda publisher, channel: publisher != ANN, 0, 9)
    story.oracle.dies(ANN, 10)
    (text,) = story.violations()
    assert "b'1.1'" in text
    assert story.oracle.unreported_last_words == 1
