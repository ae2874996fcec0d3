"""Files of one chunk: asked of one source after the other, without a transfer's machinery.

The answer is the content itself and is verified by the digest that was asked for, so nobody can
lie about it. The next source is asked when one fails, or takes long; the first right answer wins.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from blake3 import blake3

from sureline.peer.files.asking import FileAsker, FileOffer
from sureline.peer.files.finding import FetchError, Hunt
from sureline.peer.files.wire import NO_ANSWER, BadAnswerError, RefusedError
from sureline.world.address import Node, name_of

OVERTAKE_S = 1.0
"""A source that has not answered by then is overtaken by the next; where all answer more slowly,
later."""
SEARCH_S = 10.0
"""The next after those that were named is a search through the hash table, which costs some
connections: while one of them may still answer, so much later."""
SHORT_BYTES = 8 << 10
"""A file up to this size is asked for over the link that is there, if there is one."""
TOLD_MAX = 5


class _Found(NamedTuple):
    """What a source offers; with the content, if that is short. It has been verified."""

    node: Node
    offer: FileOffer


async def ask_for_small(asker: FileAsker, hunt: Hunt, size: int | None) -> _Found:
    """Raises FetchError. If the `size` is not known, a source may say that it is no small file."""
    asked: dict[asyncio.Task[FileOffer], Node] = {}
    told: list[str] = []
    coming: asyncio.Future[Node | None] | None = _next(hunt)
    is_more, short = True, size is not None and size <= SHORT_BYTES
    try:
        while asked or coming is not None:
            waited: list[asyncio.Future[Any]] = [*asked, *([coming] if coming is not None else ())]
            limit_s = _patience_s(asker, hunt) if coming is None and is_more else None
            done, _ = await asyncio.wait(
                waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if coming is not None and coming in done:
                node, coming = coming.result(), None
                is_more = node is not None
                if node is not None:
                    question = asker.describe(node, hunt.digest, inline=True, short=short)
                    task = asyncio.ensure_future(question)
                    asked[task] = node
                continue
            for task in [task for task in asked if task in done]:
                node = asked.pop(task)
                offer = _judged(task, hunt.digest, size, node, told)
                if offer is not None:
                    return _Found(node, offer)
            if coming is None and is_more:
                coming = _next(hunt)
    finally:
        for task in asked:
            task.cancel()
    named = hunt.digest[:16]
    if told:
        raise FetchError(f"no node that holds {named} can be used ({'; '.join(told[:TOLD_MAX])})")
    raise FetchError(f"no node is known to hold {named}")


def _patience_s(asker: FileAsker, hunt: Hunt) -> float:
    return asker.usual.within_s(OVERTAKE_S if hunt.names_more else SEARCH_S)


def _next(hunt: Hunt) -> asyncio.Future[Node | None]:
    coming: asyncio.Future[Node | None] = asyncio.get_running_loop().create_future()
    hunt.next(lambda node: None if coming.done() else coming.set_result(node))
    return coming


def _judged(
    task: asyncio.Task[FileOffer], digest: str, size: int | None, node: Node, told: list[str]
) -> FileOffer | None:
    """The offer, if it is not a lie."""
    name = name_of(node)
    try:
        offer = task.result()
    except RefusedError as error:
        told.append(f"{name} does not have it" if error.why == "unknown" else f"{name} is busy")
        return None
    except TimeoutError:
        told.append(f"{name} does not answer")
        return None
    except (*NO_ANSWER, BadAnswerError) as error:
        told.append(f"{name}: {error}")
        return None
    if offer.content is None:
        wrong = size is not None
    else:
        wrong = blake3(offer.content).hexdigest() != digest
    if wrong:
        told.append(f"{name} gave something else")
        return None
    return offer
