"""The sites of the user's catalog, made: their adapters, whether they work, and copies there."""

from __future__ import annotations

import hashlib
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sureline.catalog.entries import HERE, SiteEntry, Transformation, site_catalog
from sureline.catalog.replicas import Replica
from sureline.peer.content import hash_file
from sureline.sites.port import Site, SiteError, SiteWork
from sureline.sites.spooled import SpooledSite
from sureline.workflow.mistakes import UserError
from sureline.world.identity.home import home_directory

CHECK_WAIT_S = 60.0
LOOK_EVERY_S = 0.2


def catalogued(names: tuple[str, ...] = ()) -> list[SiteEntry]:
    """The sites of these names, or all; raises UserError for one that is not there."""
    file = site_catalog()
    known = file.read()
    for name in names:
        if name not in known:
            have = ", ".join(known) or "none"
            raise UserError(f"there is no site {name} in {file.path}; it has {have}")
    if not known:
        raise UserError(f"{file.path} has no site; add one with: sureline catalog sites add NAME")
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def open_site(entry: SiteEntry) -> Site:
    """Raises UserError if what its engine needs is not installed here, or is not known to it."""
    spool = Path(entry.directory or home_directory() / "sites" / entry.name)
    settings = dict(entry.settings)
    slots = max(1, int(entry.processors))
    site: Site
    match entry.engine:
        case "local":
            from sureline.sites.local import LocalSite

            site = LocalSite(spool, slots)
        case "ssh":
            from sureline.sites.ssh import SshSite

            there = entry.directory or SSH_DIRECTORY
            python, config = settings.pop("python", "python3"), settings.pop("config", "")
            options = ("-F", config) if config else ()
            site = SshSite(entry.address, spool=there, python=python, slots=slots, options=options)
        case "slurm":
            from sureline.sites.slurm import SlurmSite

            clusters, python = settings.pop("clusters", ""), settings.pop("python", sys.executable)
            return SlurmSite(spool, clusters=clusters, python=python)
        case "dask":
            from sureline.sites.dask import DaskSite

            site = DaskSite(spool, entry.address, slots)
        case "ray":
            from sureline.sites.ray import RaySite

            site = RaySite(spool, entry.address, slots)
        case _:
            raise UserError(f"{entry.name} has the engine {entry.engine}, which is not there")
    if settings:
        known = ", ".join(OWN_SETTINGS.get(entry.engine, ())) or "none"
        raise UserError(
            f"{entry.name} has the setting {next(iter(settings))!r}; the engine {entry.engine} has "
            f"{known}"
        )
    return site


OWN_SETTINGS = {"slurm": ("clusters", "python"), "ssh": ("python", "config")}
"""Settings that are ours, not options of the engine's command."""
SSH_DIRECTORY = "~/.sureline-site"


def options_of(entry: SiteEntry) -> tuple[str, ...]:
    """The entry's settings, as the engine's command takes them."""
    own = OWN_SETTINGS.get(entry.engine, ())
    return tuple(f"--{name}={value}" for name, value in entry.settings.items() if name not in own)


def check_site(entry: SiteEntry) -> str:
    """What is wrong with it, found by using it: a file there and back, and a job; '' if nothing."""
    try:
        site = open_site(entry)
        with tempfile.TemporaryDirectory() as directory:
            there, back = Path(directory, "there"), Path(directory, "back")
            there.write_text("as it was")
            site.put(there, "check/there")
            site.get("check/there", back)
            if back.read_text() != "as it was":
                return "a file came back as another one"
        _tried(site, options_of(entry), "true")
    except (SiteError, UserError) as error:
        return str(error)
    return ""


def check_programs(programs: Iterable[Transformation]) -> list[tuple[str, str]]:
    """(which program where, what is wrong with that or ''), found by looking there."""
    sites = site_catalog().read()
    calls = [(at, one.name, way) for one in programs for at, way in one.calls.items()]
    found = []
    for at in dict.fromkeys(at for at, _, _ in calls):
        there = {name: way for site, name, way in calls if site == at}
        lines, trouble = [_test_of(name, way) for name, way in there.items()], ""
        try:
            if at not in sites:
                raise UserError("no such site is in sites.yaml")
            site = open_site(sites[at])
            missing = _tried(site, options_of(sites[at]), "\n".join(lines)).splitlines()
        except (SiteError, UserError) as error:
            trouble, missing = str(error), []
        lacks = dict.fromkeys(missing, "is not there")
        found += [(f"{name} at {at}", trouble or lacks.get(name, "")) for name in there]
    return found


def _test_of(name: str, way: Mapping[str, str]) -> str:
    """A line of a shell's that prints the name of a program if it is not there."""
    ((how, what),) = way.items()
    what = shlex.quote(what)
    tests = {
        "path": f"test -x {what}",
        "module": f"(module load {what} && command -v {shlex.quote(name)})",
        "container": f"(command -v apptainer && test -e {what})",
    }
    return f"{tests[how]} > /dev/null 2>&1 || echo {shlex.quote(name)}"


def _tried(site: Site, options: tuple[str, ...], script: str) -> str:
    """What a job there prints. Raises UserError if there is something wrong with it."""
    try:
        return _try_job(site, options, script)
    finally:
        if isinstance(site, SpooledSite):
            site.close()


def _try_job(site: Site, options: tuple[str, ...], script: str) -> str:
    tag = f"check-{secrets.token_hex(4)}"
    # a login shell, as modules are made known to those
    (job,) = site.submit(SiteWork(tag=tag, argv=("sh", "-lc", script), options=options))
    give_up_at = time.monotonic() + CHECK_WAIT_S
    while True:
        status = site.look([job]).get(job)
        if status is not None and status.is_over:
            printed = site.output(job).decode("utf-8", "replace")
            site.forget(tag)
            if status.word != "ended":
                raise UserError(f"a job {status.word} ({status.reason})")
            return printed
        if time.monotonic() > give_up_at:
            site.cancel([job])
            word = "is not known to it" if status is None else f"is still {status.word}"
            raise UserError(
                f"a job was submitted {CHECK_WAIT_S:g} s ago and {word}; it was taken back"
            )
        time.sleep(LOOK_EVERY_S)


def described_replica(logical: str, site: str, path: str) -> Replica:
    """A copy as it is now; one at a site is brought here once, to be hashed."""
    with tempfile.TemporaryDirectory() as directory:
        local = Path(path)
        if site != HERE:
            local = Path(directory, "copy")
            try:
                open_site(catalogued((site,))[0]).get(path, local)
            except SiteError as error:
                raise UserError(f"{site}:{path} cannot be read: {error}") from None
        try:
            digest, size = hash_file(str(local))
            with local.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest() if site != HERE else ""
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}; name a file") from None
        executable = bool(local.stat().st_mode & 0o100)
    return Replica(logical, site, path, digest, size, executable, sha256=sha256)


def replica_trouble(row: Replica) -> str:
    """What is wrong with a copy; '' if it is whole."""
    try:
        found = described_replica(row.logical, row.site, row.path)
    except UserError as error:
        return str(error)
    return "" if found.digest == row.digest else "its content is not what it was"
