"""Opportunistic site selection, after Meyer and others: send more to where jobs come back from.

A site takes jobs into a queue of its own, and nobody outside sees that queue. So every ready task
is sent at once to the site with the best ratio of ended to submitted jobs, and what stays in a
queue for too long is taken back and sent elsewhere.

- What was sent where and what came of it: `journal.control`.
- Who chooses: `selectors`, each a few lines, the paper's beside its rivals.
- Beside the run's writer: `client`, with the queue monitor.

Any target is a site here: a machine of a grid, or whatever speaks the attempt protocol for many.
"""

from __future__ import annotations

from sureline.run.port import Strategy
from sureline.strategies.opportunistic.client import SiteClient
from sureline.strategies.opportunistic.settings import OpportunisticSettings

opportunistic = Strategy(
    name="opportunistic",
    summary="a ready task goes at once to the site where most of what was sent has ended",
    paper="Meyer, Scheftner, Voeckler, Mattoso, Wilde and Foster: An Opportunistic Algorithm for "
    "Scheduling Workflows on Grids (2006)",
    settings=OpportunisticSettings,
    deciding=SiteClient,
)
