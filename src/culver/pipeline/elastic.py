"""Slices that come and go by themselves: the controller's decisions, carried out one at a time."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from culver.errors import Conflict, CulverError
from culver.pipeline.elasticity import Add, Controller, Decision, ElasticitySettings, Nothing, Remove
from culver.pipeline.metering import Meter
from culver.pipeline.slices import DecisionView, Slices, SlicesView, check_add, decision_view

logger = logging.getLogger(__name__)


class ElasticSlices:
    """Wraps other slices, and implements Slices: changes by hand go through it, too. Lives on the event loop.

    A decision that is refused or fails is logged, and comes again after the controller's pause if it still holds.
    Call `step` about once a second, and `close` before what is wrapped is closed."""

    def __init__(
        self,
        inner: Slices,
        meter: Meter,
        settings: ElasticitySettings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._meter = meter
        self._controller = Controller(settings)
        self._monotonic = monotonic
        self._change: asyncio.Task[None] | None = None
        self._cannot: str | None = None  # why the placement has no say in it

    def step(self, backlog_events: int) -> None:
        """Look at what the meter has now, and begin what is decided. Never blocks; does nothing while a change of its
        own is on the way."""
        if self._change is not None:
            return
        view = self._inner.view()
        try:
            check_add(view, None)
        except Conflict as exc:
            self._cannot = exc.message
            return
        self._cannot = None
        loads = self._meter.loads({each.slice: each.registrations for each in view.slices})
        arrived = self._meter.arrived_per_second()
        decision = self._controller.observe(self._monotonic(), backlog_events, arrived, loads)
        if not isinstance(decision, Nothing):
            self._change = asyncio.create_task(self._carry_out(decision))
            self._change.add_done_callback(self._done)

    async def _carry_out(self, decision: Add | Remove) -> None:
        what = f"splitting slice {decision.slice}"
        if isinstance(decision, Remove):
            what = f"removing slice {decision.slice}"
        logger.info("%s: %s", what, decision.reason)
        try:
            if isinstance(decision, Add):
                await self.add(decision.slice)
            else:
                await self.remove(decision.slice)
        except CulverError as exc:
            logger.warning("%s was refused: %s", what, exc.message)
        except Exception:
            logger.exception("%s failed", what)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._change = None

    async def close(self) -> None:
        """Waits for the end of a change that is on the way: half of one helps nobody."""
        if self._change is not None:
            await asyncio.wait([self._change])

    # --- pipeline.slices.Slices -----------------------------------------------------------------------

    async def add(self, split: int | None = None) -> SlicesView:
        await self._inner.add(split)
        self._meter.forget()
        return self.view()

    async def remove(self, number: int) -> SlicesView:
        await self._inner.remove(number)
        self._meter.forget()
        return self.view()

    def view(self) -> SlicesView:
        decision = self._told(self._controller.last)
        if self._cannot is not None:
            decision = DecisionView("nothing", None, self._cannot, 0.0)
        return replace(
            self._inner.view(),
            elastic=True,
            decision=decision,
            last_change=self._told(self._controller.last_change),
        )

    def _told(self, said: tuple[float, Decision] | None) -> DecisionView | None:
        return None if said is None else decision_view(said[1], max(0.0, self._monotonic() - said[0]))
