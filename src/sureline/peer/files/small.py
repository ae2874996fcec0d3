"""Files of one chunk: asked of one source after the other, without a transfer's machinery.

The answer is the content itself and is verified by the digest that was asked for, so nobody can
lie about it. The next source is asked when one fails, or takes long; the first right answer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from blake3 import blake3

from sureline.peer.files.asking import Asker, Offer
from sureline.peer.files.wire import NO_ANSWER, BadAnswerError, RefusedError
from sureline.world.address import Node, name_of

OVERTAKE_S = 1.0
"""A source that has not answered by then is overtaken by the next."""
TRIED_MAX = 16


class Found(NamedTuple):
    """What a source offers; with the content, if that is short. It has been verified."""

    node: Node
    offer: Offer


class NobodyError(Exception):
    """No source has it; the message says what each said."""


async def ask_for_small(
    asker: Asker, digest: str, size: int | None, nodes: Sequence[Node]
) -> Found:
    """Raises NobodyError. If the `size` is not known, a source may say that it is no small file."""
    waiting = list(nodes[:TRIED_MAX])
    asked: dict[asyncio.Task[Offer], Node] = {}
    told: list[str] = []
    try:
        while waiting or asked:
            if waiting:
                node = waiting.pop(0)
                task = asyncio.ensure_future(asker.describe(node, digest, inline=True))
                asked[task] = node
            limit_s = OVERTAKE_S if waiting else None
            done, _ = await asyncio.wait(
                asked, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [task for task in asked if task in done]:
                node = asked.pop(task)
                offer = _judged(task, digest, size, node, told)
                if offer is not None:
                    return Found(node, offer)
        raise NobodyError("; ".join(told[:5]))
    finally:
        for task in asked:
            task.cancel()


def _judged(
    task: asyncio.Task[Offer], digest: str, size: int | None, node: Node, told: list[str]
) -> Offer | None:
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
