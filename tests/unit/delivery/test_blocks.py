"""Mailboxes of blocks are like those of subscriptions that were registered one by one."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from culver.config import DeliverySettings
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes, StoredMailbox
from culver.delivery.mailboxes.subscription_names import SubscriptionNames
from culver.errors import NotFound
from culver.registry.registration import Block, Registration
from support.gateway import run
from support.notifications import block, make_notifications, registration, removed, site_disk

ROWS = 40


def singles(of: Block) -> list[Registration]:
    return [
        registration(number, f"{of.name}.{of.first + number - of.number}", mailbox_count=5)
        for number in of.numbers().tolist()
    ]


@pytest.mark.parametrize("seed", range(4))
def test_block_counts_as_its_members_do_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    stored = {f"quotes.{n}": StoredMailbox(10 + n, rng.randrange(20), ()) for n in rng.sample(range(ROWS), 5)}
    together, alone = (Mailboxes(DeliverySettings(), stored) for _ in range(2))
    offset, number = 0, 100
    made = block(mailbox_count=5)
    gone: set[int] = set()

    def accept() -> None:
        nonlocal offset
        rows = {n: [offset + i for i in range(8) if rng.random() < 0.3] for n in range(5, number + 1)}
        for mailboxes in (together, alone):
            mailboxes.accept(make_notifications(offset, offset + 8, rows))
        offset += 8

    accept()  # before the block is known
    together.register_block(made)
    alone.register(singles(made))
    for _ in range(30):
        accept()
        member = rng.randrange(ROWS)
        name = f"quotes.{member}"
        match rng.choice(["replace", "remove", "acknowledge", "drop"]):
            case "replace" if member not in gone:
                number += 1
                for mailboxes in (together, alone):
                    mailboxes.register([registration(number, name, since=offset)])
            case "remove" if member not in gone:
                gone.add(member)
                newest = alone.numbers_of(alone.slot_of(name))[-1]
                for mailboxes in (together, alone):
                    assert mailboxes.register([removed(registration(newest, name), offset)]) == [
                        (name, newest)
                    ]
            case "acknowledge" if member not in gone:
                for mailboxes in (together, alone):
                    mailboxes.acknowledge(mailboxes.slot_of(name), offset - 5)
            case "drop":
                for mailboxes in (together, alone):
                    for slot in mailboxes.columns.overflowing():
                        mailboxes.drop_overflow(slot)
        assert state(together) == state(alone)
    left = [10 + n for n in range(ROWS) if f"quotes.{n}" in live_in_block(together, made)]
    holes = np.array([n for n in range(10, 10 + ROWS) if n not in left], np.int64)
    together.register_block(replace(made, until=offset, holes=holes))
    alone.register([removed(registration(n, f"quotes.{n - 10}"), offset) for n in left])
    assert state(together) == state(alone)
    assert together.consumed_blocks() == [10]
    assert together.consumed_blocks() == []


def live_in_block(mailboxes: Mailboxes, made: Block) -> set[str]:
    names = {f"quotes.{n}" for n in range(ROWS)}
    return {
        name
        for name in names
        if (slot := mailboxes.slot_of(name)) != NONE and mailboxes.numbers_of(slot)[-1] < 10 + ROWS
    }


def state(mailboxes: Mailboxes) -> dict[str, object]:
    result: dict[str, object] = {"needed": mailboxes.needed_from()}
    for n in range(ROWS):
        slot = mailboxes.slot_of(f"quotes.{n}")
        if slot != NONE:
            result[mailboxes.subscription(slot)] = (
                mailboxes.numbers_of(slot),
                mailboxes.cursor(slot),
                mailboxes.pending(slot),
                mailboxes.pending_bytes(slot),
                mailboxes.offsets(slot, -1, 100),
                mailboxes.gaps(slot, -1),
            )
    return result


def test_slots_of_an_ended_block_are_used_again() -> None:
    mailboxes = Mailboxes(DeliverySettings(), {})
    for turn in range(5):
        made = block(number=1 + turn * 1000, count=1000, mailbox_count=5)
        mailboxes.register_block(made)
        assert mailboxes.slot_of("quotes.999") == 999
        assert mailboxes.subscription(999) == "quotes.999"
        mailboxes.register_block(replace(made, until=0))
        assert mailboxes.slot_of("quotes.999") == NONE


def test_end_of_a_block_ends_its_sessions_and_forgets_its_cursors(tmp_path: Path) -> None:
    async def scenario() -> None:
        with site_disk(tmp_path) as disk:
            hub = disk.hub()
            made = block(count=3, mailbox_count=5)
            hub.register([made])
            disk.feed(hub, 0, 4, {10: [1], 11: [2], 12: [3]})
            session = await hub.open_session(registration(11, "quotes.1"))
            replaced = registration(20, "quotes.2", since=4)
            await hub.acknowledge("quotes.1", 2)
            await hub.acknowledge("quotes.2", 3)
            hub.register([replaced])
            kept = await hub.open_session(replaced)
            hub.register([replace(made, until=4, holes=np.array([12], np.int64))])
            with pytest.raises(NotFound):
                await session.receive(1, 0)
            assert await kept.receive(1, 0) == []
            assert (await hub.housekeep(0)).blocks == [10]
            await hub.close()
            hub = disk.hub()
            hub.register([replaced])
            assert hub.mailboxes.cursor(hub.mailboxes.slot_of("quotes.2")) == 3
            again = block(number=30, count=3, mailbox_count=5)
            hub.register([again])
            assert hub.mailboxes.cursor(hub.mailboxes.slot_of("quotes.1")) == -1
            await hub.close()

    run(scenario())


def test_members_are_found_where_earlier_blocks_with_their_places_have_gone() -> None:
    names = SubscriptionNames()
    for place in range(3):
        names.add_block(block(10 + place, place, 1))  # whose members leave, one by one
    names.add_block(block(20, 0, 3))
    assert [names.number(f"quotes.{place}") for place in range(3)] == [20, 21, 22]
    assert names.subscription(NONE, 22) == "quotes.2"
