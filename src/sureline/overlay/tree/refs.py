"""Names of places in the tree."""

from __future__ import annotations

from typing import Annotated

import msgspec

from sureline.world.protocol import AgentId

Peer = Annotated[AgentId, msgspec.Meta(max_length=400)]


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place in the tree: the leaf or the branch of a peer."""

    host: Peer
    leaf: bool
