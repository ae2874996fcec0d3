"""A provider's contracts, from when they are made until they are over.

    made -> assigned to an attempt -> bound (its Bind has come) -> closed
      |  at once, unless reserved        |
      `-------- lapsed: closed unused ---'

Each holds a place on the machine from the beginning. Their number is bounded; of those that are
closed, what came of the newest is remembered.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import msgspec

from sureline.peer.admitting import Key
from sureline.peer.capacity import Capacity
from sureline.strategies.surety.contract import Bid, Contract
from sureline.strategies.surety.pricing import Ending, Settlement, settlement
from sureline.strategies.surety.provider.places import PromisedPlaces
from sureline.workflow.model import Needs, Takes
from sureline.world.protocol import World

CONTRACTS_MAX = 10_000
CLOSED_MAX = 10_000
BIND_WITHIN_S = 120.0
"""A contract for an attempt lapses if its Bind has not come by then."""

DealKey = tuple[str, str, int]
"""(client, run, number)."""


class InvokedBy(NamedTuple):
    """Which INVOKE made a contract; one without an attempt makes a reservation."""

    deal: DealKey
    serial: int
    reserved: bool


class Promise(msgspec.Struct):
    """A contract, with what the provider must know of it."""

    contract: Contract
    deal: DealKey
    serial: int
    """Of the INVOKE that made it."""
    needs: Needs
    takes: Takes | None
    """What the client believed."""
    until: float
    """If it is not bound by then, it lapses."""
    place: int
    attempt: Key | None = None
    bound_at: float | None = None

    @property
    def client(self) -> str:
        return self.deal[0]


class Promises:
    def __init__(self, capacity: Capacity, world: World) -> None:
        self.places = PromisedPlaces(capacity)
        self.earned = 0.0
        self._world = world
        self._open: dict[str, Promise] = {}
        self._of_attempt: dict[tuple[str, Key], str] = {}
        self._of_deal: dict[DealKey, dict[str, None]] = {}
        self._lapsing: list[tuple[float, str]] = []
        self._closed: dict[str, Settlement] = {}

    @property
    def room(self) -> int:
        """How many more there may be."""
        return CONTRACTS_MAX - len(self._open)

    def get(self, number: str) -> Promise | None:
        return self._open.get(number)

    def of_attempt(self, client: str, attempt: Key) -> Promise | None:
        number = self._of_attempt.get((client, attempt))
        return None if number is None else self._open[number]

    def of_deal(self, deal: DealKey) -> list[Promise]:
        return [self._open[number] for number in self._of_deal.get(deal, ())]

    def closed(self, number: str) -> Settlement | None:
        return self._closed.get(number)

    def make(
        self, asked: InvokedBy, bid: Bid, needs: Needs, takes: Takes | None, now: float
    ) -> Promise:
        """A contract that holds a place: reserved until its bid expires, or for an attempt."""
        number, until = self._number(), now + BIND_WITHIN_S
        if asked.reserved:
            until = math.inf if bid.expires is None else bid.expires
        place = self.places.take(needs, until + bid.time)
        contract = Contract(number, bid, now, asked.reserved)
        promise = Promise(contract, asked.deal, asked.serial, needs, takes, until, place)
        self._open[number] = promise
        self._of_deal.setdefault(asked.deal, {})[number] = None
        self._lapses(promise)
        return promise

    def assign(self, promise: Promise, attempt: Key, now: float) -> None:
        """It is for this attempt, whose Bind is to come."""
        promise.attempt = attempt
        promise.until = now + BIND_WITHIN_S
        self._of_attempt[promise.client, attempt] = promise.contract.number
        self.places.expect(promise.place, now + promise.contract.bid.time)
        self._lapses(promise)

    def bound(self, promise: Promise, now: float) -> None:
        promise.bound_at = now
        self.places.expect(promise.place, now + promise.contract.bid.time)

    def _lapses(self, promise: Promise) -> None:
        heapq.heappush(self._lapsing, (promise.until, promise.contract.number))
        if len(self._lapsing) > 4 * CONTRACTS_MAX:  # most of them are of contracts that are over
            waiting = [one for one in self._open.values() if one.bound_at is None]
            self._lapsing = sorted((one.until, one.contract.number) for one in waiting)

    def lapse(self, now: float) -> None:
        """Give up those whose time is over and that were not used."""
        while self._lapsing and self._lapsing[0][0] <= now:
            _, number = heapq.heappop(self._lapsing)
            promise = self._open.get(number)
            if promise is not None and promise.bound_at is None and promise.until <= now:
                self.close(promise, "unused", now)

    def close(self, promise: Promise, ending: Ending, now: float) -> Settlement:
        contract, number = promise.contract, promise.contract.number
        begun_at = now if promise.bound_at is None else promise.bound_at
        due = settlement(contract.bid, ending, now - begun_at, reserved=contract.reserved)
        self.earned += due.paid
        del self._open[number]
        if promise.attempt is not None:
            del self._of_attempt[promise.client, promise.attempt]
        mine = self._of_deal[promise.deal]
        del mine[number]
        if not mine:
            del self._of_deal[promise.deal]
        self.places.give_back(promise.place)
        self._closed[number] = due
        while len(self._closed) > CLOSED_MAX:
            del self._closed[next(iter(self._closed))]
        return due

    def _number(self) -> str:
        while (number := f"{self._world.random.getrandbits(64):016x}") in self._open:
            pass
        return number
