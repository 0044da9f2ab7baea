import pytest

from culver.simulation import VirtualClock, virtual_clock


def test_actions_run_in_the_order_of_their_times_and_equal_times_in_the_order_of_setting() -> None:
    clock = VirtualClock()
    ran: list[tuple[str, float]] = []
    for name, time in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0)):
        clock.at(time, lambda name=name: ran.append((name, clock.now)))  # type: ignore[misc]
    clock.run_until(5)
    assert ran == [("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", 2.0)]
    assert clock.now == 5


def test_an_action_may_schedule_another_for_the_same_time_which_runs_after_those_that_wait() -> None:
    clock = VirtualClock()
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        clock.after(0, lambda: ran.append("third"))

    clock.at(1, first)
    clock.at(1, lambda: ran.append("second"))
    clock.run_until(1)
    assert ran == ["first", "second", "third"]


def test_actions_beyond_the_end_wait_for_the_next_run() -> None:
    clock = VirtualClock()
    ran: list[float] = []
    clock.at(3, lambda: ran.append(clock.now))
    clock.run_until(2.9)
    assert ran == []
    clock.run_for(0.2)
    assert ran == [3]


def test_a_cancelled_timer_does_not_run() -> None:
    clock = VirtualClock()
    ran: list[int] = []
    timer = clock.at(1, lambda: ran.append(1))
    timer.cancel()
    clock.run_until(2)
    assert ran == []


def test_the_past_cannot_be_scheduled() -> None:
    clock = VirtualClock()
    clock.run_until(2)
    with pytest.raises(ValueError, match="has passed"):
        clock.at(1.9, lambda: None)


def test_run_while_stops_at_the_action_that_ends_the_condition() -> None:
    clock = VirtualClock()
    ran: list[float] = []
    for time in (1, 2, 3):
        clock.at(time, lambda: ran.append(clock.now))
    assert clock.run_while(lambda: len(ran) < 2, limit_seconds=10)
    assert clock.now == 2


def test_run_while_gives_up_at_its_limit() -> None:
    clock = VirtualClock()
    assert not clock.run_while(lambda: True, limit_seconds=10)
    assert clock.now == 10


def test_actions_that_schedule_each_other_without_delay_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_clock, "MOST_ACTIONS_AT_ONE_TIME", 100)
    clock = VirtualClock()

    def again() -> None:
        clock.after(0, again)

    again()
    with pytest.raises(RuntimeError, match="time stands still"):
        clock.run_until(1)
