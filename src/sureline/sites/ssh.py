"""The site `ssh`: processes of another machine, on which there is Python and nothing of ours.

`at_site.py` is brought there once, under the name of its content, and answers. All that is asked
goes as one command and one line of JSON; what comes back is checked before it is believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sureline.sites import at_site
from sureline.sites.local import numbered, plain, statuses
from sureline.sites.port import JobId, JobStatus, SiteError, SiteWork

COMMAND_LIMIT_S = 60.0
COPY_LIMIT_S = 1800.0
SPOOL = "~/.sureline-site"
NOT_THERE = 97
"""The exit code by which our own command line says that `at_site.py` is not there yet."""
REFUSED = 255
"""ssh's own, for all that is not the command's doing."""
SSH = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=15",
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ControlMaster=auto",
    "-o",
    "ControlPersist=30",
)
"""Calls that follow one another share a connection, which ends by itself when nobody needs it."""
_FINAL = ("permission denied", "host key verification failed", "could not resolve", "bad config")


class SshSite:
    """`host` as ssh takes it, its configuration included; `spool` a directory there; `options` for
    ssh itself."""

    name = "ssh"
    shares_files = False

    def __init__(
        self,
        host: str,
        *,
        spool: str = SPOOL,
        python: str = "python3",
        slots: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        if not host or host.startswith("-"):
            raise SiteError(f"{host!r} is not the name of a host", again=False)
        self.where = host
        self._spool = spool
        self._python = python
        self._slots = slots
        self._ssh = ["ssh", *options, *SSH, *_shared_connection(), "--", host]
        self._source = Path(at_site.__file__).read_bytes()
        version = hashlib.sha256(self._source).hexdigest()[:16]
        self._program = f"{spool}/at_site-{version}.py"

    # -- the port --------------------------------------------------------------------------------

    def submit(self, work: SiteWork) -> list[JobId]:
        if work.options:
            raise SiteError(
                f"site {self.name} has no options, such as {work.options[0]}", again=False
            )
        self._call("submit", work=plain(work, self._slots))
        return numbered(work)

    def look(self, jobs: Iterable[JobId]) -> Mapping[JobId, JobStatus]:
        answer = self._call("look", jobs=list(jobs))
        try:
            return statuses(msgspec.convert(answer, dict[str, dict[str, Any]]))
        except msgspec.ValidationError as error:
            raise SiteError(f"{self.where} answers nonsense: {error}", again=True) from None

    def find(self, tag: str = "") -> Mapping[JobId, str]:
        answer = msgspec.convert(self._call("find", tag=tag), dict[str, str])
        return {JobId(job): found for job, found in answer.items()}

    def cancel(self, jobs: Iterable[JobId]) -> None:
        self._call("cancel", jobs=list(jobs))

    def output(self, job: JobId, limit_bytes: int = 1 << 16) -> bytes:
        return str(self._call("output", job=job, limit_bytes=limit_bytes)).encode("latin-1")

    def forget(self, tag: str) -> None:
        self._call("forget", tag=tag)

    def ahead(self, options: Sequence[str] = ()) -> int | None:
        return None

    def put(self, source: Path, target: str) -> None:
        self._ready()
        try:
            with source.open("rb") as file:
                about = source.stat()
                words = (self._path(target), str(about.st_size), f"{about.st_mode & 0o777:o}")
                self._run(self._there("put", *words), file, COPY_LIMIT_S)
        except OSError as error:
            raise SiteError(f"cannot read {source}: {error}", again=False) from None

    def get(self, source: str, target: Path) -> None:
        self._ready()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as new:
            try:
                command = self._there("get", self._path(source))
                self._run(command, None, COPY_LIMIT_S, printed=new)
            except SiteError:
                Path(new.name).unlink()
                raise
        Path(new.name).replace(target)

    # -- by ssh ----------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return name if name.startswith(("/", "~")) else f"{self._spool}/{name}"

    def _there(self, *words: str) -> str:
        """Our program with these words, as the shell there takes it; NOT_THERE if it is not."""
        program = _quoted(self._program)
        python = shlex.quote(self._python)
        given = " ".join(shlex.quote(word) for word in words)
        return f"test -e {program} || exit {NOT_THERE}; exec {python} {program} {given}"

    def _call(self, what: str, **request: object) -> Any:
        text = json.dumps({"call": what, "spool": self._spool, **request}).encode()
        answer = self._answered(text, unsure=what == "submit")
        try:
            found = json.loads(answer)
            if "error" not in found:
                return found["answer"]
        except (ValueError, TypeError, KeyError):
            raise SiteError(
                f"{self.where} answers nonsense: {answer[:200]!r}; does its shell print something "
                "at login?",
                again=False,
            ) from None
        kind, _, said = str(found["error"]).partition(": ")
        if kind == "FileExistsError":
            said = f"the tag was used before ({said})"
        raise SiteError(f"{self.where}: {said}", again=kind not in ("FileExistsError",))

    def _answered(self, text: bytes, *, unsure: bool) -> bytes:
        with tempfile.TemporaryFile() as request:
            request.write(text)
            for again in (True, False):
                request.seek(0)
                try:
                    return self._run(self._there("call"), request, COMMAND_LIMIT_S, unsure=unsure)
                except _NotThereError:
                    if not again:
                        raise
                    self._bring()
        raise AssertionError("the second try answers or raises")

    def _ready(self) -> None:
        """Have our program there."""
        self._call("find", tag="-")

    def _bring(self) -> None:
        target = _quoted(self._program)
        text = (
            f"umask 077; mkdir -p {_quoted(self._spool)} && cat > {target}.$$.new && "
            f"mv {target}.$$.new {target}"
        )
        with tempfile.TemporaryFile() as source:
            source.write(self._source)
            source.seek(0)
            self._run(text, source, COMMAND_LIMIT_S)

    def _run(
        self,
        command: str,
        given: Any,
        limit_s: float,
        *,
        printed: Any = subprocess.PIPE,
        unsure: bool = False,
    ) -> bytes:
        # `sh -c`, since nobody knows what the login shell there is
        argv = [*self._ssh, f"exec sh -c {shlex.quote(command)}"]
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL if given is None else given,
                stdout=printed,
                stderr=subprocess.PIPE,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            sentence = f"{self.where} has not answered within {limit_s:g} s"
            raise SiteError(sentence, again=True, unsure=unsure) from None
        except OSError as error:
            raise SiteError(f"cannot run ssh: {error}", again=False) from None
        if done.returncode == 0:
            return done.stdout or b""
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "no word why"
        if done.returncode == NOT_THERE:
            raise _NotThereError(f"{self.where}: our program is gone again", again=True)
        if done.returncode == REFUSED:
            final = any(words in said.lower() for words in _FINAL)
            raise SiteError(f"ssh {self.where}: {said}", again=not final, unsure=unsure)
        if done.returncode == 127:
            said = f"there is no {self._python} (or no sh) there"
        raise SiteError(f"{self.where}: {said}", again=False)


def _shared_connection() -> list[str]:
    """Where ssh keeps the socket of a connection: a directory of nobody else's, with a short name,
    since such a path has at most 108 bytes."""
    place = Path(tempfile.gettempdir(), f"sureline-ssh-{os.getuid()}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        about = place.lstat()
    except OSError:
        return ["-o", "ControlPath=none"]
    is_ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    if not is_ours or about.st_mode & 0o077:
        return ["-o", "ControlPath=none"]
    return ["-o", f"ControlPath={place}/%C"]


class _NotThereError(SiteError):
    pass


def _quoted(path: str) -> str:
    """For the shell there, which knows what `~` is."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
