"""Claims on stored files, each a small file of its own, so that all processes that share a cache
see them and a crash loses none that counts.

A *pin* lives as long as the process that set it: its name carries that process's token, and the
process holds a lock on a file of that name until it dies, however it dies. An *only copy* mark is
durable: it says that a run still needs this content and may find it nowhere else.

A claim on a directory is on its manifest and on all that the manifest names.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, unquote

from sureline.peer.content import hash_bytes
from sureline.workflow.files import FileRecord, is_digest

PARTS_KNOWN_MAX = 256
"""Of so many claimed directories, the parts are remembered."""
_WHY_BYTES_MAX = 200
_RUN_CHARS_MAX = 150
_PIN = re.compile(r"[0-9a-f]{64}\.[df]\.[0-9a-f-]+\.[0-9]+")
_MARK = re.compile(r"[0-9a-f]{64}\.[df]\..+")
_RUN_FROM = 66
"""Where in a mark's name the dot before the run stands."""


class FileClaim(NamedTuple):
    """`run` is '' for a pin."""

    digest: str
    directory: bool
    run: str
    why: str


class Pin:
    """One claim of this process; `release` ends it. May be used in a `with` statement."""

    def __init__(self, path: str) -> None:
        self._path = path

    def release(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Claims:
    """All methods but `token` must be called under the cache's lock, except releasing."""

    def __init__(self, root: str, parts_of: Callable[[str], list[str]]) -> None:
        self._pins, self._only, self._users = (f"{root}/{d}" for d in ("pins", "only", "users"))
        for directory in (self._pins, self._only, self._users):
            os.makedirs(directory, exist_ok=True)
        self._parts_of = parts_of
        self._parts: dict[str, list[str]] = {}
        self._serial = itertools.count()
        self._unsynced = False
        self._token, self._life = self._live()

    def _live(self) -> tuple[str, int]:
        """A token for this process, and the lock that shows that it lives."""
        token = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden = f"{self._users}/.{token}"
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.rename(hidden, f"{self._users}/{token}")  # nobody ever sees it unlocked
        return token, fd

    def close(self) -> None:
        """Release all pins of this process."""
        self._forget(self._token)
        os.close(self._life)

    # -- setting ----------------------------------------------------------------------------

    def pin(self, record: FileRecord, why: str) -> Pin:
        """What is no stored content needs no claim, and gets none."""
        if not is_digest(record.digest):
            return Pin("")
        name = f"{record.digest}.{_kind(record)}.{self._token}.{next(self._serial)}"
        path = f"{self._pins}/{name}"
        _write(path, why)
        return Pin(path)

    def mark_only_copy(self, record: FileRecord, run: str, why: str) -> None:
        """Outlives this process from now on, and the machine's crash after the next `sync`."""
        path = self._mark_path(record, run)
        if is_digest(record.digest) and not os.path.exists(path):
            _write(path, why)
            self._unsynced = True

    @property
    def unsynced(self) -> bool:
        """Whether there are marks that a power cut would take."""
        return self._unsynced

    def sync(self) -> None:
        """Make the marks durable. For a worker thread; needs no lock."""
        if self._unsynced:
            self._unsynced = False
            fd = os.open(self._only, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def release_only_copy(self, record: FileRecord, run: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._mark_path(record, run))

    def release_run(self, run: str) -> None:
        ending = f".{_as_name(run)}"
        for name in os.listdir(self._only):
            if _MARK.fullmatch(name) and name[_RUN_FROM:] == ending:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._only}/{name}")

    def runs(self) -> set[str]:
        """Those with marks; one with a very long name by a name that stands for it."""
        names = filter(_MARK.fullmatch, os.listdir(self._only))
        return {unquote(name[_RUN_FROM + 1 :]) for name in names}

    def _mark_path(self, record: FileRecord, run: str) -> str:
        return f"{self._only}/{record.digest}.{_kind(record)}.{_as_name(run)}"

    # -- looking ----------------------------------------------------------------------------

    def all(self) -> list[FileClaim]:
        """All claims that hold, of all processes, with their reasons."""
        found = []
        for claim, path in self._names():
            why = _read(path)
            if why is not None:
                found.append(claim._replace(why=why))
        return found

    def protected(self) -> dict[str, FileClaim]:
        """What no eviction may take, parts of directories included. Without reasons: there may be
        many, and others wait for the lock."""
        found: dict[str, FileClaim] = {}
        for claim, _ in self._names():
            found.setdefault(claim.digest, claim)
            if claim.directory:
                for part in self._known_parts(claim.digest):
                    found.setdefault(part, claim)
        return found

    def _names(self) -> list[tuple[FileClaim, str]]:
        """All claims that hold, and where each lies; those of dead processes are removed."""
        found = []
        for name in sorted(filter(_MARK.fullmatch, os.listdir(self._only))):
            digest, kind, run = name.split(".", 2)
            claim = FileClaim(digest, kind == "d", unquote(run), "")
            found.append((claim, f"{self._only}/{name}"))
        alive: dict[str, bool] = {self._token: True}
        for name in sorted(filter(_PIN.fullmatch, os.listdir(self._pins))):
            digest, kind, token, _ = name.split(".", 3)
            if token not in alive:
                alive[token] = self._lives(token)
            if alive[token]:
                found.append((FileClaim(digest, kind == "d", "", ""), f"{self._pins}/{name}"))
        for token, lives in alive.items():
            if not lives:
                self._forget(token)
        return found

    def _known_parts(self, digest: str) -> list[str]:
        parts = self._parts.get(digest)
        if parts is None:
            parts = self._parts_of(digest)
            if parts:
                if len(self._parts) >= PARTS_KNOWN_MAX:
                    self._parts.clear()
                self._parts[digest] = parts
        return parts

    def _lives(self, token: str) -> bool:
        try:
            fd = os.open(f"{self._users}/{token}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _forget(self, token: str) -> None:
        """Remove the pins of a process, then its token: never the other way round."""
        for name in filter(_PIN.fullmatch, os.listdir(self._pins)):
            if name.split(".", 3)[2] == token:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._pins}/{name}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._users}/{token}")


def _as_name(run: str) -> str:
    """A run as the end of a file's name, whatever it is called."""
    name = quote(run, safe="")
    return name if len(name) <= _RUN_CHARS_MAX else f"%{hash_bytes(run.encode())}"


def _kind(record: FileRecord) -> str:
    return "d" if record.directory else "f"


def _write(path: str, why: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, why.encode("utf-8", "replace")[:_WHY_BYTES_MAX])
    finally:
        os.close(fd)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as claim:
            return claim.read()
    except FileNotFoundError:
        return None
