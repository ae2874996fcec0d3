"""Bulk requests with short answers, over a link that is there.

A connection costs as much CPU as some hundred kilobytes of data. Where two nodes talk with each
other anyway, a request whose answer is known to be short goes along with what their agents say. If
the answer is longer than that, or too many are under way, it is asked again as others are.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Protocol

from sureline.world.net.bulk_wire import BulkRefusedError
from sureline.world.net.control import SmallAnswer, SmallAsk
from sureline.world.net.interfaces import BulkBody, BulkHandler, FileRegion
from sureline.world.net.link import NetLink
from sureline.world.protocol import Message

SMALL_BYTES = 16 << 10
"""Of a whole answer: messages that come behind it do not wait for long."""
REQUEST_BYTES_MAX = 4 << 10
REASON_CHARS_MAX = 500
UNDER_WAY_MAX = 256
UNDER_WAY_OF_LINK_MAX = 16


class SmallAsksOwner(Protocol):
    loop: asyncio.AbstractEventLoop

    def say(self, link: NetLink, message: Message) -> None: ...
    def complain(self, kind: str, source: str, text: str) -> None: ...


class SmallAsks:
    """Both sides: what this node asks, and what it answers."""

    def __init__(self, owner: SmallAsksOwner, handler: BulkHandler | None) -> None:
        self._owner = owner
        self._handler = handler
        self._number = 0
        self._asked: dict[int, tuple[NetLink, asyncio.Future[SmallAnswer | None]]] = {}
        self._answering: dict[asyncio.Task[None], NetLink] = {}
        self._of_link: Counter[NetLink] = Counter()
        """How many of each link are being answered."""

    async def ask(self, link: NetLink, request: bytes) -> tuple[bytes, memoryview] | None:
        """The answer; None if it cannot be had this way. Raises BulkRefusedError."""
        if len(request) > REQUEST_BYTES_MAX or len(self._asked) >= UNDER_WAY_MAX:
            return None
        self._number += 1
        number, future = self._number, self._owner.loop.create_future()
        self._asked[number] = link, future
        try:
            self._owner.say(link, SmallAsk(number, request))
            answer = await future
        finally:
            self._asked.pop(number, None)
        if answer is None or answer.elsewhere:
            return None
        if answer.refused:
            raise BulkRefusedError(answer.refused[:REASON_CHARS_MAX])
        return answer.header, memoryview(answer.body)

    def heard(self, link: NetLink, message: SmallAsk | SmallAnswer) -> None:
        if isinstance(message, SmallAnswer):
            of, future = self._asked.get(message.number, (None, None))
            if of is link and future is not None and not future.done():
                future.set_result(message)
        elif not self._may_answer(link, message):
            self._owner.say(link, SmallAnswer(message.number, elsewhere=True))
        else:
            task = self._owner.loop.create_task(self._answer(link, message))
            self._answering[task] = link
            self._of_link[link] += 1
            task.add_done_callback(self._answered)

    def _may_answer(self, link: NetLink, asked: SmallAsk) -> bool:
        return (
            self._handler is not None
            and len(asked.request) <= REQUEST_BYTES_MAX
            and len(self._answering) < UNDER_WAY_MAX
            and self._of_link[link] < UNDER_WAY_OF_LINK_MAX
        )

    def _answered(self, task: asyncio.Task[None]) -> None:
        link = self._answering.pop(task)
        self._of_link[link] -= 1
        if not self._of_link[link]:
            del self._of_link[link]

    async def _answer(self, link: NetLink, asked: SmallAsk) -> None:
        assert self._handler is not None
        try:
            header, body = await self._handler(link.identity, asked.request)
            content = await self._content(body, SMALL_BYTES - len(header))
        except BulkRefusedError as error:
            said = SmallAnswer(asked.number, refused=str(error)[:REASON_CHARS_MAX] or "it says no")
        except Exception as error:
            text = f"a bulk request of {link.node} failed here: {error!r}"
            self._owner.complain("bulk", link.node, text)
            said = SmallAnswer(asked.number, refused="it failed there")
        else:
            if content is None:
                said = SmallAnswer(asked.number, elsewhere=True)
            else:
                said = SmallAnswer(asked.number, header, content)
        self._owner.say(link, said)

    async def _content(self, body: BulkBody, room_bytes: int) -> bytes | None:
        """None if it is too long."""
        if not isinstance(body, FileRegion):
            content = memoryview(body).cast("B")
            return bytes(content) if len(content) <= room_bytes else None
        if body.size_bytes > room_bytes:
            return None
        return await self._owner.loop.run_in_executor(None, _read, body)

    def lost(self, link: NetLink) -> None:
        """The link is gone: what was asked over it is asked otherwise."""
        for of, future in self._asked.values():
            if of is link and not future.done():
                future.set_result(None)
        for task, of in self._answering.items():
            if of is link:
                task.cancel()

    def close(self) -> None:
        for task in self._answering:
            task.cancel()


def _read(region: FileRegion) -> bytes:
    file = os.open(region.path, os.O_RDONLY)
    try:
        found = os.pread(file, region.size_bytes, region.offset)
    finally:
        os.close(file)
    if len(found) < region.size_bytes:
        raise OSError(f"{region.path} ends too early")
    return found
