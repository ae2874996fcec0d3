"""Taking Sureline along to a machine that has only Python: the very version that runs here.

What is brought is the package and those that it needs, as they are installed here, without the
compiler that only simulations use; it fits if the Python there is of the same kind. It is packed
once, and brought once to each site.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import secrets
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import sureline
from sureline.sites.port import JobStatus, Site, SiteError, SiteWork

LEFT_OUT = {"numba", "llvmlite"}
"""Of those who run tasks, nobody needs them."""
LOOK_EVERY_S = 0.2
UNPACKED_WITHIN_S = 600.0
KIND = (
    "import platform, sys; "
    "print(sys.implementation.cache_tag, sys.platform, platform.machine(), platform.libc_ver()[0])"
)


def ensure_brought(site: Site, python: str, here: Path) -> str:
    """The directory, relative to the site's own, in which Sureline is there. Raises SiteError."""
    name = f"brought-{_version()}"
    try:
        site.get(f"{name}/complete", here / "complete")
        return name
    except SiteError as error:
        if error.again:
            raise
    _check_kind(site, python)
    pack = here / f"{name}.tar.gz"
    if not pack.exists():
        _pack(pack)
    site.put(pack, f"{name}.tar.gz")
    new = f"{name}.{secrets.token_hex(4)}"
    # the job's own directory is one below the site's
    script = (
        f"cd .. && mkdir {new} && tar xzf {name}.tar.gz -C {new} && touch {new}/complete && "
        f"{{ mv -T {new} {name} 2>/dev/null || test -e {name}/complete; }} && rm -f {name}.tar.gz"
    )
    status, said = _done(site, "unpack", ("sh", "-c", script))
    if status.word != "ended":
        raise SiteError(f"{site.where}: cannot unpack Sureline there: {said}", again=True)
    return name


def _check_kind(site: Site, python: str) -> None:
    mine = (
        f"{sys.implementation.cache_tag} {sys.platform} {platform.machine()} "
        f"{platform.libc_ver()[0]}"
    )
    status, said = _done(site, "kind", (python, "-c", KIND))
    if status.word != "ended" or said != mine:
        found = said if status.word == "ended" else f"none ({said})"
        raise SiteError(
            f"{site.where}: the Python there is {found}, here it is {mine.strip()}: what runs here "
            "cannot be brought along; install Sureline there, and name its Python with --python",
            again=False,
        )


def _done(site: Site, what: str, argv: tuple[str, ...]) -> tuple[JobStatus, str]:
    """Run a little job to its end; how it ended, and the last line that it printed."""
    work = SiteWork(tag=f"{what}-{secrets.token_hex(6)}", argv=argv, limit_s=UNPACKED_WITHIN_S)
    (job,) = site.submit(work)
    while True:
        status = site.look([job]).get(job)
        if status is not None and status.is_over:
            break
        time.sleep(LOOK_EVERY_S)
    said = site.output(job).decode(errors="replace").rstrip("\n").rpartition("\n")[2]
    site.forget(work.tag)
    return status, said


def _version() -> str:
    """Changes with anything that would be brought."""
    digest = hashlib.sha256()
    for name, path in _files():
        if path.suffix != ".so" and not name.startswith("sureline/"):
            continue  # the names and versions of others stand in their metadata's directories
        digest.update(f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _pack(target: Path) -> None:
    new = target.with_suffix(f".{secrets.token_hex(4)}.new")
    new.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(new, "w:gz", compresslevel=1) as archive:
        for name, path in _files():
            archive.add(path, name, recursive=False)
    new.replace(target)


def _files() -> Iterator[tuple[str, Path]]:
    root = Path(sureline.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"sureline/{path.relative_to(root)}", path
    for distribution in _needed("sureline"):
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                yield str(file), path


def _needed(name: str) -> list[importlib.metadata.Distribution]:
    """What the package needs, and what that needs in turn, in order of name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left, seen = [name], set(LEFT_OUT)
    while left:
        one = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if one in seen:
            continue
        seen.add(one)
        try:
            distribution = importlib.metadata.distribution(one)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other systems only
        if one != name:
            found[one] = distribution
        words = (r for r in distribution.requires or () if "extra ==" not in r)
        left += [m.group() for r in words if (m := re.match(r"[A-Za-z0-9._-]+", r))]
    return [found[one] for one in sorted(found)]
