"""The home: where a machine keeps its grids.

`$SURELINE_HOME` (by default `sureline` in the user's configuration directory) has a directory
`grids/GRID` for each grid it belongs to:

| file             | what                                                                       |
|------------------|----------------------------------------------------------------------------|
| `ca.crt`         | the grid's CA certificate: what this home trusts                           |
| `peer.pem`       | this home's key and certificate in one file, so that both change at once   |
| `issuer.json`    | where the home that holds the CA answers, and which invitation we used     |
| `revocations`    | the newest signed list of who is out                                       |
| `contacts.json`  | nodes seen last: where to knock after a restart                            |
| `strikes.json`   | peers that were refuted in runs of this home (`compose.strikes`)           |
| `serving.json`   | where this home's peer listens, while one serves (and holds `serving.lock`) |
| `authority/`     | only in the home that made the grid; see `authority`                       |

Several homes on one machine are several peers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from sureline.world.address import Node
from sureline.world.identity import disk
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.names import check_name, is_name

CONTACTS_MAX = 32
PORT_DEFAULT = 7733
"""Where a peer listens unless it is told otherwise."""
FILE_BYTES_MAX = 1_000_000


class Issuer(msgspec.Struct, frozen=True):
    """How this home got into the grid, and where it can ask again."""

    name: str
    """The peer that issued; this home itself if it made the grid."""
    addresses: tuple[str, ...] = ()
    invitation: str = ""


class Serving(msgspec.Struct, frozen=True):
    """A peer that serves from this home."""

    node: Node
    """Its address, `NAME@HOST:PORT`."""
    pid: int


def home_directory() -> Path:
    """`$SURELINE_HOME`, or the user's default."""
    given = os.environ.get("SURELINE_HOME")
    if given:
        return Path(given).absolute()
    configuration = os.environ.get("XDG_CONFIG_HOME")
    base = Path(configuration) if configuration else Path.home() / ".config"
    return base.absolute() / "sureline"


def grids_directory(home: Path) -> Path:
    return home / "grids"


def make_home(home: Path) -> Path:
    """The directory of grids, made if need be. Raises IdentityError if it is too open."""
    grids = grids_directory(home)
    disk.ensure_directory(grids)
    _check_home(home)
    disk.sweep(grids)
    return grids


def grid_names(home: Path) -> list[str]:
    """The grids this home belongs to, in order. Raises IdentityError if it is too open."""
    _check_home(home)
    try:
        return sorted(name for name in os.listdir(grids_directory(home)) if is_name(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk.unusable(grids_directory(home), error) from None


def _check_home(home: Path) -> None:
    disk.check_not_writable(home)
    disk.check_private(grids_directory(home))


class GridHome:
    """One grid in one home. Reading checks permissions; writing is atomic and durable."""

    def __init__(self, home: Path, grid: str) -> None:
        self.home = home
        self.grid = grid
        self.path = grids_directory(home) / grid

    @classmethod
    def open(cls, grid: str | None = None, home: Path | None = None) -> GridHome:
        """The named grid, or the only one there is. Raises IdentityError."""
        where = home_directory() if home is None else home
        names = grid_names(where)
        if grid is None:
            grid = _only(names, where)
        check_name(grid, "a grid")
        if grid not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise IdentityError(
                f"there is no grid {grid!r} in {where} ({known}); join it with "
                f"'sureline peer --join INVITATION', or make it with 'sureline grid new {grid}'"
            )
        opened = cls(where, grid)
        disk.check_private(opened.path)
        return opened

    def read(self, name: str) -> bytes:
        """A file that must be there. Raises IdentityError."""
        found = disk.read(self.path / name, FILE_BYTES_MAX)
        if found is None:
            raise IdentityError(f"{self.path / name} is missing; restore it, or enrol anew")
        return found

    @property
    def credentials_path(self) -> Path:
        return self.path / "peer.pem"

    def authority_certificate(self) -> bytes:
        return self.read("ca.crt")

    @property
    def holds_authority(self) -> bool:
        """Was the grid made here: can this home invite and revoke?"""
        return (self.path / "authority").is_dir()

    def revocations(self) -> bytes:
        """The signed list; empty if none was heard of yet."""
        return disk.read(self.path / "revocations", FILE_BYTES_MAX) or b""

    def revocations_stamp(self) -> tuple[int, int]:
        """Changes whenever the list does."""
        try:
            found = os.stat(self.path / "revocations")
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def locked(self) -> AbstractContextManager[None]:
        """Held while files change that several processes of this home write."""
        return disk.locked(self.path / "lock")

    def keep_revocations(self, signed: bytes) -> None:
        disk.write(self.path / "revocations", signed)

    def issuer(self) -> Issuer:
        try:
            return msgspec.json.decode(self.read("issuer.json"), type=Issuer)
        except msgspec.MsgspecError:
            raise IdentityError(
                f"{self.path / 'issuer.json'} is damaged; restore it, or enrol anew"
            ) from None

    def contacts(self) -> tuple[str, ...]:
        """Nodes last seen, best first. A damaged file is as good as none: it is only a hint."""
        found = disk.read(self.path / "contacts.json", FILE_BYTES_MAX)
        try:
            return msgspec.json.decode(found or b"[]", type=tuple[str, ...])[:CONTACTS_MAX]
        except msgspec.MsgspecError:
            return ()

    def doors(self) -> tuple[str, ...]:
        """Nodes at which to knock after a restart: contacts, then where the issuer was."""
        issuer = self.issuer()
        nodes = [f"{issuer.name}@{address}" for address in issuer.addresses]
        return tuple(dict.fromkeys((*self.contacts(), *nodes)))

    def keep_contacts(self, nodes: Iterable[str]) -> None:
        """Remember the first CONTACTS_MAX of these, best first."""
        disk.write(self.path / "contacts.json", encode_contacts(nodes))

    def claim(self) -> HomeClaim:
        """The right to serve from this home, until it is released or this process ends. Raises
        IdentityError if another peer has it: one certificate listens in one place."""
        descriptor = disk.try_lock(self.path / "serving.lock", patience_s=1.0)
        if descriptor is None:
            serving = self.serving()
            who = f" ({serving.node}, process {serving.pid})" if serving else ""
            raise IdentityError(
                f"a peer serves from this home already{who}; stop it, or set SURELINE_HOME "
                "to another directory for another peer"
            )
        disk.sweep(self.path)
        return HomeClaim(self.path / "serving.json", descriptor)

    def serving(self) -> Serving | None:
        """The peer that serves from this home, if there is one."""
        descriptor = disk.try_lock(self.path / "serving.lock")
        if descriptor is not None:
            os.close(descriptor)
            return None
        found = disk.read(self.path / "serving.json", FILE_BYTES_MAX)
        try:
            return None if found is None else msgspec.json.decode(found, type=Serving)
        except msgspec.MsgspecError:
            return None


class HomeClaim:
    """Held by the peer that serves from a home."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        path.unlink(missing_ok=True)  # from one that was killed

    def announce(self, node: Node) -> None:
        """Say where this process listens, for `invite` and other commands of this home."""
        disk.write(self._path, msgspec.json.encode(Serving(node=node, pid=os.getpid())))

    def release(self) -> None:
        """Serve no more. Idempotent."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def encode_contacts(nodes: Iterable[str]) -> bytes:
    return msgspec.json.encode(list(dict.fromkeys(nodes))[:CONTACTS_MAX])


def _only(names: Sequence[str], home: Path) -> str:
    if len(names) == 1:
        return names[0]
    if names:
        raise IdentityError(f"{home} has the grids {', '.join(names)}; say which with --grid")
    raise IdentityError(
        f"{home} has no grid; make one with 'sureline grid new NAME', or join one with "
        "'sureline peer --join INVITATION'"
    )
