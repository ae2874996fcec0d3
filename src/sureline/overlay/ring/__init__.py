"""A ring with two layers: molecules under hashed keys, and an order-preserving layer for ranges.

`Ring` (agent) is what others use. `places` (keys and positions), `table` (who is known) and
`register` (one molecule, changed by majority) are its pure parts; `lookup`, `captures`, `metas` and
`ranges` drive them with messages; `following` keeps it in step with the membership. Bounds and
intervals are in `settings`.
"""

from sureline.overlay.ring.agent import Ring
from sureline.overlay.ring.captures import Captured
from sureline.overlay.ring.messages import MESSAGES, Meta, ValueRange
from sureline.overlay.ring.places import Feature
from sureline.overlay.ring.ranges import Query
from sureline.overlay.ring.settings import RingSettings

__all__ = ["Captured", "Feature", "ValueRange", "MESSAGES", "Meta", "Query", "Ring", "RingSettings"]
