"""What a node keeps for others: values under keys, each until it expires.

A store adds to what is there, so a file may have several locations. A full key gives up the value
that expires first; a full table refuses new keys, and the publisher turns to the next node.
"""

from __future__ import annotations

from collections.abc import Iterator

from sureline.overlay.kademlia.messages import ValueRecord
from sureline.overlay.kademlia.settings import KademliaSettings


class _Held:
    """The values under one key: publisher and time of expiry by value."""

    __slots__ = ("stored_at", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, tuple[str, float]] = {}
        self.stored_at = 0.0


class Storage:
    __slots__ = ("_held", "_settings", "_value_bytes")

    def __init__(self, settings: KademliaSettings) -> None:
        self._settings = settings
        self._held: dict[bytes, _Held] = {}
        self._value_bytes = 0

    def keep(self, record: ValueRecord, now: float) -> bool:
        """Keep a record, or refuse it. One that is kept already never expires earlier for it."""
        settings = self._settings
        if len(record.value) > settings.value_bytes_max or not record.ttl_s > 0:
            return False
        held = self._held.get(record.key)
        if self._value_bytes + len(record.value) > settings.values_bytes_max and not (
            held is not None and record.value in held.values
        ):
            return False
        if held is None:
            if len(self._held) >= settings.keys_max:
                return False
            held = self._held[record.key] = _Held()
        if record.value not in held.values:
            self._value_bytes += len(record.value)
        expires_at = now + min(record.ttl_s, settings.value_ttl_s)
        publisher, until = held.values.get(record.value, (record.publisher, 0.0))
        held.values[record.value] = (publisher, max(until, expires_at))
        if len(held.values) > settings.values_max:
            self._drop(held, min(held.values, key=lambda value: held.values[value][1]))
        held.stored_at = now
        return record.value in held.values

    def records(self, key: bytes, now: float) -> tuple[ValueRecord, ...]:
        """What there is under the key and has not expired."""
        held = self._held.get(key)
        if held is None:
            return ()
        return tuple(
            ValueRecord(key, value, publisher, expires_at - now)
            for value, (publisher, expires_at) in held.values.items()
            if expires_at > now
        )

    def forget(self, key: bytes, value: bytes, publisher: str) -> None:
        """Drop the value if this is who published it."""
        held = self._held.get(key)
        if held is not None and held.values.get(value, ("", 0.0))[0] == publisher:
            self._drop(held, value)
            if not held.values:
                del self._held[key]

    def _drop(self, held: _Held, value: bytes) -> None:
        del held.values[value]
        self._value_bytes -= len(value)

    def expire(self, now: float) -> None:
        for key in list(self._held):
            held = self._held[key]
            for value in [v for v, (_, until) in held.values.items() if until <= now]:
                self._drop(held, value)
            if not held.values:
                del self._held[key]

    def unattended(self, since: float) -> Iterator[bytes]:
        """Keys that nobody stored anything under since then."""
        return (key for key, held in self._held.items() if held.stored_at < since)

    def attend(self, key: bytes, now: float) -> None:
        """Note that the replicas of this key are being seen to."""
        held = self._held.get(key)
        if held is not None:
            held.stored_at = now

    def __iter__(self) -> Iterator[bytes]:
        """The keys."""
        return iter(self._held)

    def values_under(self, key: bytes) -> int:
        held = self._held.get(key)
        return len(held.values) if held is not None else 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held
