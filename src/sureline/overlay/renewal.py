"""Renewing certificates before they expire: a peer asks the one whose home holds the CA.

No new proof is needed. The transport has checked by the sender's certificate who it is, so the
issuer gives the same name and the same roles once more, for another year. The key stays the same,
and never travels. Who is away for longer than a certificate lasts needs a new invitation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sureline.world.address import Node, at, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, World

PART = "renewal"
CHECK_S = 6 * 3600.0


class RenewalAsk(Message, frozen=True, tag="renewal.ask"):
    """Renew my certificate. Answered by RenewalDone, or not at all."""

    signing_request: bytes


class RenewalDone(Message, frozen=True, tag="renewal.done"):
    certificate: bytes


MESSAGES = (RenewalAsk, RenewalDone)
"""All that travels, for the codec."""


class Renewal(Agent):
    """Part `renewal` of a node.

    `request` gives the signing request when a renewal is due, `accept` takes the new certificate,
    and `issuers` are nodes where the CA's home may serve now. `issue` is given only there: it
    makes a certificate for the named peer, None if that peer shall have none.
    """

    def __init__(
        self,
        me: AgentId,
        world: World,
        *,
        request: Callable[[], bytes | None],
        accept: Callable[[bytes], None],
        issuers: Callable[[], Sequence[Node]],
        issue: Callable[[str, bytes], bytes | None] | None = None,
    ) -> None:
        super().__init__(me, world)
        self._request = request
        self._accept = accept
        self._issuers = issuers
        self._issue = issue
        self._asked: Node | None = None

    def start(self) -> None:
        """Look now, and from then on every few hours."""
        self._check()

    def _check(self) -> None:
        self.world.after(CHECK_S * self.world.random.uniform(0.5, 1.0), self._check)
        request = self._request()
        issuers = list(self._issuers()) if request is not None else []
        if request is not None and issuers:
            self._asked = self.world.random.choice(issuers)
            self.world.send(at(self._asked, PART), RenewalAsk(request))

    @handles(RenewalAsk)
    def _ask(self, sender: AgentId, ask: RenewalAsk) -> None:
        if self._issue is not None:
            certificate = self._issue(peer_of(sender), ask.signing_request)
            if certificate is not None:
                self.world.send(sender, RenewalDone(certificate))

    @handles(RenewalDone)
    def _done(self, sender: AgentId, done: RenewalDone) -> None:
        if node_of(sender) == self._asked:
            self._asked = None
            self._accept(done.certificate)
