"""A ring with two layers: molecules under hashed keys, and an order-preserving layer for ranges.

`Ring` (agent) is what others use. What the paper assumes of its ring (section 3) is in `places`
(keys and positions), `lookup` (who owns a key), `captures` (what can be done with a molecule),
`metas` and `ranges` (resources in order, and asking for them).

The rest is what the paper leaves out, and what keeps a ring alive whose nodes come, go, die, stand
still and are cut off: `table` (who is known), `register` and `decree` (three holders, of which a
majority agrees on each change, and leases), `base` (questions, and how long an answer is waited
for), the beat in `agent`, `following` (in step with the membership). Bounds and intervals are in
`settings`.
"""

from sureline.overlay.ring.agent import Ring
from sureline.overlay.ring.captures import Captured
from sureline.overlay.ring.messages import MESSAGES, Meta, ValueRange
from sureline.overlay.ring.places import Feature
from sureline.overlay.ring.ranges import Query
from sureline.overlay.ring.settings import RingSettings

__all__ = ["Captured", "Feature", "ValueRange", "MESSAGES", "Meta", "Query", "Ring", "RingSettings"]
