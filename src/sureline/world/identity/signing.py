"""Signed runs: who may write a run, and what its writer has said, so that a third can check it.

Copies of a run lie with peers who could change them. So a run has *papers*, and what its writer
tells is *sealed*.

- `Charter`: what the submitter's certificate (role `submit`) signs when the run begins: the run's
  name, what its graph and its first event are, and the run's own key (a `RunKey`).
- `Delegation`: what the run's key signs for that run alone: who has this role (`drive`) may write
  it too, until then.
- `Mandate`: what the certificate of a writer signs when it begins: the run, its epoch, and the key
  with which it will seal. The writer is the submitter, or has the delegation's role.
- `Papers`: these three. `verify(papers, run, epoch, trust)` gives a `WriterAuthority`, or raises
  `PapersError` with one sentence. Nothing that papers say is believed before that.
- A run's events form a chain: `WriterAuthority.start`, then `fold` for each event in order. A
  *seal* is the writer's signature over the chain up to a position: it vouches for all before it, of
  earlier epochs too, since a writer has verified what it builds on.

How to use it:

    papers = charter(home, key, run, graph, first_event, at)      # once, at submission
    papers = delegated(papers, key, run, "drive", until)          # at submission, if wanted
    signer = begun(papers, home, new_key, run, epoch, at, trust)  # every writer: its mandate
    signer.seal(position, chain)                                  # signer.papers travel beside it
    authority = verify(papers, run, epoch, trust, now)            # whoever is told something
    is_sealed(authority, position, chain, seal, trust)

`home` is a `Certified`: `world.identity.run_keys` has that of a real home, with real keys and the
grid's authority as `Trust`; `world.simulated.signing` has simulated ones. This module has no clock,
no keys and no files of its own.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

SUBMIT = "submit"
DRIVE = "drive"
PAPERS_BYTES_MAX = 16 << 10
AHEAD_S_MAX = 600.0
"""Clocks of machines that nobody controls differ."""
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_EPOCH_MAX = 1 << 31
_POSITION = struct.Struct("<Q")
_CHARTER, _DELEGATION, _MANDATE, _SEAL, _CHAIN = (
    b"sureline run %s 1\0" % what
    for what in (b"charter", b"delegation", b"mandate", b"seal", b"chain")
)
"""SignedPaper with what they name, so that no signature can pass for another."""

T = TypeVar("T")


class PapersError(Exception):
    """Why a run's papers are not believed, in one sentence."""


class Charter(msgspec.Struct, frozen=True, array_like=True):
    run: str
    graph: bytes
    """Its `digest`."""
    first_event: bytes
    """The `digest` of the event that says how the run is to be run, as it is encoded."""
    key: bytes
    """The public half of the run's key."""
    at: float


class Delegation(msgspec.Struct, frozen=True, array_like=True):
    run: str
    role: str
    until: float
    """No writer may begin later, by the clock of those who are told."""


class Mandate(msgspec.Struct, frozen=True, array_like=True):
    run: str
    epoch: int
    key: bytes
    """The public half of the key with which this writer seals."""
    at: float


class SignedPaper(msgspec.Struct, frozen=True, array_like=True):
    """A document as it was signed, by the key of a certificate, or by the run's key."""

    body: bytes
    signature: bytes
    certificate: bytes = b""


class Papers(msgspec.Struct, frozen=True, array_like=True):
    charter: SignedPaper
    delegation: SignedPaper | None = None
    mandate: SignedPaper | None = None

    def encoded(self) -> bytes:
        return _encode(self)


class RunKey(Protocol):
    """A key of a run's writer."""

    @property
    def public(self) -> bytes: ...

    def sign(self, said: bytes) -> bytes: ...


class Certified(Protocol):
    """Who has a certificate of the grid, and its key."""

    @property
    def certificate(self) -> bytes: ...

    def sign(self, said: bytes) -> bytes: ...


class CertificateHolder(Protocol):
    """Whom a certificate names."""

    @property
    def name(self) -> str: ...

    @property
    def roles(self) -> frozenset[str]: ...


class Trust(Protocol):
    """Which certificates and signatures are good."""

    def holder(self, certificate: bytes) -> CertificateHolder:
        """Raises PapersError if the certificate is not of this grid, has expired or is revoked."""

    def signed_by_holder(self, certificate: bytes, signature: bytes, said: bytes) -> bool: ...

    def signed_by_key(self, key: bytes, signature: bytes, said: bytes) -> bool: ...


class WriterAuthority(NamedTuple):
    """What verified papers say."""

    run: str
    epoch: int
    submitter: str
    writer: str
    """The name in its certificate."""
    key: bytes
    graph: bytes
    first_event: bytes
    start: bytes
    """The `chain_start`."""


class RunSigner(NamedTuple):
    """A writer's own side: what it shows, and how it seals."""

    papers: bytes
    epoch: int
    key: RunKey
    authority: WriterAuthority

    def seal(self, position: int, chain: bytes) -> bytes:
        return self.key.sign(_sealed(self.epoch, position, chain))


_encode = msgspec.msgpack.Encoder().encode
_papers = msgspec.msgpack.Decoder(Papers).decode


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def is_run_name(text: str) -> bool:
    """Whether this can name a run: it names directories too."""
    return _RUN.fullmatch(text) is not None


def charter(
    by: Certified, key: RunKey, run: str, graph: bytes, first_event: bytes, at: float
) -> Papers:
    """The papers of a new run; `graph` and `first_event` as they are encoded."""
    body = _encode(Charter(run, digest(graph), digest(first_event), key.public, at))
    return Papers(SignedPaper(body, by.sign(_CHARTER + body), by.certificate))


def delegated(papers: Papers, key: RunKey, run: str, role: str, until: float) -> Papers:
    """The papers, with which those who have the role may go on too; `key` is the charter's."""
    body = _encode(Delegation(run, role, until))
    delegation = SignedPaper(body, key.sign(_DELEGATION + body))
    return msgspec.structs.replace(papers, delegation=delegation)


def begun(
    papers: Papers, by: Certified, key: RunKey, run: str, epoch: int, at: float, trust: Trust
) -> RunSigner:
    """A writer begins. Raises PapersError if it may not."""
    body = _encode(Mandate(run, epoch, key.public, at))
    mandate = SignedPaper(body, by.sign(_MANDATE + body), by.certificate)
    papers = msgspec.structs.replace(papers, mandate=mandate)
    return RunSigner(papers.encoded(), epoch, key, verify(papers, run, epoch, trust, at))


def read_papers(encoded: bytes) -> Papers:
    """Raises PapersError; says nothing of whether they are true."""
    if not encoded:
        raise PapersError("it is not signed")
    try:
        if len(encoded) <= PAPERS_BYTES_MAX:
            return _papers(encoded)
    except (msgspec.DecodeError, RecursionError):
        pass
    raise PapersError("its papers cannot be read")


def verify(
    papers: Papers | bytes, run: str, epoch: int | None, trust: Trust, now: float | None = None
) -> WriterAuthority:
    """What the papers say of this run and this epoch, or of whichever they name. With `now`, of a
    writer that begins at this time: its delegation must not be over. Raises PapersError."""
    if isinstance(papers, bytes):
        papers = read_papers(papers)
    _check(is_run_name(run), "no run can have this name")
    chartered = _by_holder(papers.charter, _CHARTER, Charter, "charter", trust)
    _check(chartered.run == run, "its charter is that of another run")
    submitter = trust.holder(papers.charter.certificate)
    _check(SUBMIT in submitter.roles, f"{submitter.name} may not submit runs")
    if papers.mandate is None:
        raise PapersError("no writer has signed for it")
    mandate = _by_holder(papers.mandate, _MANDATE, Mandate, "mandate", trust)
    _check(mandate.run == run, "its writer has signed for another run")
    same = epoch is None or mandate.epoch == epoch
    _check(same and 0 < mandate.epoch < _EPOCH_MAX, "its writer has signed for another epoch")
    writer = trust.holder(papers.mandate.certificate)
    if writer.name != submitter.name:
        began = mandate.at if now is None else max(now, mandate.at)
        _check_delegate(papers.delegation, chartered, writer, began, trust)
    return WriterAuthority(
        run,
        mandate.epoch,
        submitter.name,
        writer.name,
        mandate.key,
        chartered.graph,
        chartered.first_event,
        chain_start(papers),
    )


def chain_start(papers: Papers) -> bytes:
    """Where the chain of the run's events begins; another for every charter."""
    return digest(_CHAIN + papers.charter.body)


def _check_delegate(
    signed: SignedPaper | None,
    chartered: Charter,
    writer: CertificateHolder,
    began: float,
    trust: Trust,
) -> None:
    if signed is None:
        raise PapersError(f"{writer.name} did not submit it and was not asked to drive it")
    good = trust.signed_by_key(chartered.key, signed.signature, _DELEGATION + signed.body)
    _check(good, "its delegation is forged")
    delegation = _read(signed.body, Delegation, "delegation")
    _check(delegation.run == chartered.run, "its delegation is that of another run")
    _check(delegation.role in writer.roles, f"{writer.name} has not the role {delegation.role}")
    _check(began <= delegation.until + AHEAD_S_MAX, "its delegation is over")


def _by_holder(signed: SignedPaper, context: bytes, kind: type[T], what: str, trust: Trust) -> T:
    """A document, once the certificate and the signature are found good."""
    trust.holder(signed.certificate)
    said = context + signed.body
    _check(
        trust.signed_by_holder(signed.certificate, signed.signature, said), f"its {what} is forged"
    )
    return _read(signed.body, kind, what)


def _read(body: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.DecodeError:
        raise PapersError(f"its {what} cannot be read") from None


def _check(holds: bool, why_not: str) -> None:
    if not holds:
        raise PapersError(why_not)


# -- what a writer says ------------------------------------------------------------------------


def fold(chain: bytes, events: Iterable[tuple[int, bytes]]) -> bytes:
    """The chain after these events: position and encoded body of each."""
    for position, body in events:
        chain = hashlib.sha256(chain + _POSITION.pack(position) + body).digest()
    return chain


def is_sealed(
    authority: WriterAuthority, position: int, chain: bytes, seal: bytes, trust: Trust
) -> bool:
    """Whether this writer has vouched for the chain up to this position."""
    return trust.signed_by_key(authority.key, seal, _sealed(authority.epoch, position, chain))


def _sealed(epoch: int, position: int, chain: bytes) -> bytes:
    return _SEAL + _POSITION.pack(epoch) + _POSITION.pack(position) + chain
