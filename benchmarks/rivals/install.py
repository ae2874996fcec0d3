"""Environments of the rivals: one each, outside the repository, with pinned versions."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = {
    "ray": "ray==2.60.0",
    "parsl": "parsl==2026.10.26",
    "dask": "dask[distributed]==2026.8.0 cryptography==50.0.2",
    "hyperqueue": "hyperqueue==0.27.0",
}
INSTALL_TIMEOUT_S = 900.0
REASON_CHARS_MAX = 400


@dataclass(frozen=True)
class Environment:
    """An interpreter and the versions of all packages beside it; or the reason there is none."""

    python: Path
    versions: dict[str, str]
    reason: str = ""


def default_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "sureline-benchmarks"


def environment(rival: str, directory: Path) -> Environment:
    """The rival's environment, made if it is not there in the version wanted here.

    A rival that cannot be installed comes back with a reason; nothing is raised for it.
    """
    where = directory / f"{rival}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = where / "bin" / "python"
    try:
        with _locked(directory / f"{rival}.lock"):
            return Environment(python, _present_or_made(where, python, REQUIREMENTS[rival]))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Environment(python, {}, f"not installed: {_told(error)}")


def _present_or_made(where: Path, python: Path, wanted: str) -> dict[str, str]:
    """The versions in the environment at `where`."""
    ready = where / "ready.json"
    try:
        found = json.loads(ready.read_text())
        if found["requirement"] == wanted:
            return dict(found["versions"])
    except (OSError, ValueError, KeyError):
        pass  # not there, or left half made: it is made anew
    shutil.rmtree(where, ignore_errors=True)
    versions = _make(where, python, wanted)
    # Written last: an environment without it does not count.
    ready.write_text(json.dumps({"requirement": wanted, "versions": versions}))
    return versions


def _make(where: Path, python: Path, requirement: str) -> dict[str, str]:
    _run(sys.executable, "-m", "venv", str(where))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", *requirement.split())
    listed = json.loads(_run(*pip, "list", "--format", "json"))
    return {package["name"]: package["version"] for package in listed}


def _run(*command: str) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
    )
    return done.stdout


def _told(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip()[-REASON_CHARS_MAX:]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two benchmarks at a time must not build one environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
