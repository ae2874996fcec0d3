"""A slot that runs the commands of others: its part in keeping them in their place.

The directory of the slot, `work/RUN/SLOT`, holds what its commands write: `std.out` and `std.err`,
and `box/` with one directory for each command and `tmp`. Commands may write there and nowhere else.
Nothing of a command outlives it, wherever in the box it lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from sureline.peer.confine.landlock import BoundThread, Domain
from sureline.peer.confine.limits import Usage, limit_this_process
from sureline.peer.confine.namespaces import enter
from sureline.peer.confine.rules import Rules, clean_environment
from sureline.peer.confine.system import hear_only_ends
from sureline.peer.removing import empty_directory

T = TypeVar("T")


class Confined:
    """Moves this process, which has one thread yet, to where the commands of others may run.
    Raises OSError if the system does not let it."""

    def __init__(self, rules: Rules, root: str, own: str) -> None:
        self._rules = rules
        self.box = f"{own}/box"
        self.temporary = f"{self.box}/tmp"
        os.makedirs(self.temporary, mode=0o700, exist_ok=True)
        self._made = _made(self.temporary)
        self._mode = os.stat(self.box).st_mode & 0o777
        readable = rules.readable()
        if rules.kind == "full":
            enter(rules, root, self.temporary)
        limit_this_process(rules)
        self._inherited = clean_environment(os.environ, readable)
        domain = Domain(rules, writable=[self.box], files_writable=[own])
        self._thread = BoundThread(domain)

    def environment(self, home: str) -> Mapping[str, str]:
        """Of a command that runs in `home`."""
        return {**self._inherited, "HOME": home, "TMPDIR": self.temporary}

    def start(self, spawn: Callable[[], T]) -> T:
        """Start a command that is bound to the box."""
        return self._thread.do(spawn)

    def hear_only_ends(self) -> None:
        """An interpreter is stopped and goes on with every call, which nobody need be told of."""
        hear_only_ends()

    def usage(self) -> Usage:
        return Usage(self._rules, [self.box])

    def clean(self, kept: str) -> None:
        """After a command, of which no process is left: nothing stays but the directory `kept` and
        an empty one for temporary files. A command may have put anything in the place of that."""
        stays = {os.path.basename(kept), os.path.basename(self.temporary)}
        try:
            names = os.listdir(self.box)
        except PermissionError:
            os.chmod(self.box, self._mode)
            names = os.listdir(self.box)
        if not stays.issuperset(names):
            empty_directory(self.box, stays)
        if self._made != _made(self.temporary):
            empty_directory(self.box, {os.path.basename(kept)})
            os.mkdir(self.temporary, 0o700)
            self._made = _made(self.temporary)
        elif os.listdir(self.temporary):
            empty_directory(self.temporary)


def _made(path: str) -> tuple[int, int] | None:
    """What tells a directory from another that is put in its place."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mode
