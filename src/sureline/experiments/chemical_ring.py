"""A ring at rest, for counting: who is asked on the way to a key, and how often.

The paper's simulator moves one hop in each time step, on a network where nothing fails. So a ring
is an ordered array of identifiers here; a message goes to the farthest known node that is not
beyond its key, where a node knows who follows at each power of two (Chord). Compiled, since a
hundred thousand nodes see tens of millions of messages. `chemical_agents` compares with the real
ring's agents.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sureline.compiled import compiled

Ids = NDArray[np.uint64]
Counts = NDArray[np.int64]


@compiled
def owner_of(ids: Ids, key: np.uint64) -> int:
    """The first node at or after a key."""
    found = np.searchsorted(ids, key)
    return 0 if found == len(ids) else int(found)


@compiled
def route(ids: Ids, load: Counts, start: int, key: np.uint64) -> int:
    """Send a message from a node to the owner of a key; the hops it took. Each node that it
    reaches has one message more."""
    end = owner_of(ids, key)
    node, hops = start, 0
    while node != end:
        left = key - ids[node]  # modulo 2^64, as the ring is round
        following = node + 1 if node + 1 < len(ids) else 0
        best = following
        bit = np.uint64(63)
        while bit > np.uint64(0):
            far = np.uint64(1) << bit
            if far <= left:
                found = owner_of(ids, ids[node] + far)
                if ids[found] - ids[node] <= left and found != node:
                    best = found
                    break
            bit -= np.uint64(1)
        if best == following and ids[best] - ids[node] >= left:
            best = end
        node = best
        hops += 1
        load[node] += 1
    return hops


@compiled
def pieces(
    ids: Ids, load: Counts, start: int, first: np.uint64, last: np.uint64
) -> tuple[int, int]:
    """A range query as the paper assumes: log2 n arcs, all looked up at once. (messages, steps)."""
    count = max(1, int(np.ceil(np.log2(len(ids)))))
    step = (last - first) // np.uint64(count)
    messages = most = 0
    for number in range(count):
        hops = route(ids, load, start, first + np.uint64(number) * step)
        messages += hops
        most = max(most, hops)
    return messages, most


def make_ids(nodes: int, seed: int) -> Ids:
    random = np.random.default_rng([seed, nodes])
    found: Ids = np.unique(random.integers(0, 1 << 63, 2 * nodes + 64, dtype=np.uint64) * 2 + 1)
    return np.sort(random.permutation(found)[:nodes])
