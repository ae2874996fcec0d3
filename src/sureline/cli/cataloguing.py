"""The user's catalogs: catalog sites, catalog transformations, catalog replicas, catalog made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
import msgspec
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Directory, Json, overrides, working_directory
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.catalog.replicas import Replica
    from sureline.compose.derivations import Derivation

catalog = cyclopts.App(
    name="catalog",
    help="""Write down once which sites you have, how programs are called, and where files are.

    The catalogs lie in $SURELINE_HOME/catalog: sites.yaml and transformations.yaml, which you may
    edit by hand, and replicas.db. `sureline run FLOW --sites` uses them.""",
)

What = Annotated[Literal["add", "ls", "rm", "check"], Parameter(help="What to do.")]


def catalog_sites(
    what: What = "ls",
    name: Annotated[str | None, Parameter(help="Which site.")] = None,
    /,
    *,
    engine: Annotated[
        Literal["local", "ssh", "slurm", "dask", "ray"] | None,
        Parameter(help="add: what takes tasks there."),
    ] = None,
    processors: Annotated[float | None, Parameter(help="add: how many you may count on.")] = None,
    memory: Annotated[
        str | None, Parameter(help="add: memory in all, e.g. 64GB. Default: not counted.")
    ] = None,
    files: Annotated[
        str | None,
        Parameter(help="add: the directory for files there. Default: the engine's own."),
    ] = None,
    address: Annotated[
        str | None,
        Parameter(
            help="add: where it is reached: USER@HOST of ssh, a scheduler's address of dask or "
            "ray. Default: this machine."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        Parameter(negative="", consume_multiple=False, help="add: a tag it offers. Repeatable."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        Parameter(
            name="--with",
            negative="",
            consume_multiple=False,
            help="add: a setting of the engine, such as partition=long. Repeatable.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """List the sites, add or remove one, or check that each can be used.

    Example: sureline catalog sites add meggie --engine slurm --processors 200 --with partition=work
    """
    from sureline.catalog.entries import SiteEntry, site_catalog
    from sureline.workflow.quantities import QuantityError, parse_size

    file = site_catalog()
    if what == "add":
        if name is None or engine is None or processors is None:
            raise UserError("add needs a name, --engine and --processors; see --help")
        try:
            memory_bytes = parse_size(memory) if memory else 0
        except QuantityError as error:
            raise UserError(f"--memory: {error}") from None
        settings = overrides(with_, "--with")
        entry = SiteEntry(
            *(name, engine, processors, memory_bytes, files or "", address or ""),
            tuple(tag or ()),
            settings,
        )
        file.add(entry)
        return _said({"added": name, "file": str(file.path)}, f"added site {name}", json)
    if what == "rm":
        file.remove(_named(name, "a site"))
        return _said({"removed": name, "file": str(file.path)}, f"removed site {name}", json)
    entries = list(file.read().values())
    if what == "check":
        from sureline.compose.catalogued import check_site

        chosen = [one for one in entries if name in (None, one.name)]
        if not chosen:
            raise UserError(f"there is no site {name} in {file.path}; see: sureline catalog sites")
        found = [(one.name, check_site(one)) for one in chosen]
        return _checked([(site, trouble) for site, trouble in found], json)
    rows = [msgspec.to_builtins(one) for one in entries]
    if json:
        console.print_json({"file": str(file.path), "sites": rows})
    elif not rows:
        console.say(f"no site in {file.path}; add one with: sureline catalog sites add NAME ...")
    else:
        _table(
            ("site", "engine", "processors", "address", "directory"),
            [(s.name, s.engine, f"{s.processors:g}", s.address, s.directory) for s in entries],
        )
    return 0


def catalog_transformations(
    what: What = "ls",
    name: Annotated[str | None, Parameter(help="Which program, as commands call it.")] = None,
    site: Annotated[str | None, Parameter(help="add: at which site.")] = None,
    /,
    *,
    path: Annotated[str | None, Parameter(help="add: it lies there.")] = None,
    module: Annotated[
        str | None, Parameter(help="add: it is there once this module is loaded.")
    ] = None,
    container: Annotated[
        str | None, Parameter(help="add: it is in this container image (run by apptainer).")
    ] = None,
    json: Json = False,
) -> int:
    """List how programs are called at sites, add or remove a program, or look there for them.

    A task whose command names a program of this catalog runs only at sites that have it.

    Example: sureline catalog transformations add blastn meggie --module blast/2.14
    """
    from sureline.catalog.entries import Transformation, transformation_catalog

    file = transformation_catalog()
    if what == "add":
        ways = {"path": path, "module": module, "container": container}
        given = {key: value for key, value in ways.items() if value}
        if name is None or site is None or len(given) != 1:
            raise UserError("add needs a program, a site, and --path, --module or --container")
        before = file.read().get(name, Transformation(name, {}))
        entry = Transformation(name, {**before.calls, site: given})
        file.add(entry, replace=True)
        told = f"{name} is called by its {next(iter(given))} at {site}"
        return _said({"added": name, "site": site, "file": str(file.path)}, told, json)
    if what == "rm":
        file.remove(_named(name, "a program"))
        return _said({"removed": name, "file": str(file.path)}, f"removed {name}", json)
    entries = file.read()
    if what == "check":
        from sureline.compose.catalogued import check_programs

        return _checked(check_programs(entries.values()), json)
    if json:
        rows = [msgspec.to_builtins(one) for one in entries.values()]
        console.print_json({"file": str(file.path), "transformations": rows})
    elif not entries:
        console.say(f"no program in {file.path}; commands are called as they are written")
    else:
        calls = [
            (one.name, at, way, called)
            for one in entries.values()
            for at, ways_there in one.calls.items()
            for way, called in ways_there.items()
        ]
        _table(("program", "site", "by", "which"), calls)
    return 0


def catalog_replicas(
    what: What = "ls",
    file: Annotated[str | None, Parameter(help="A file's name in workflows.")] = None,
    place: Annotated[
        str | None,
        Parameter(help="add, rm: SITE:PATH, or a path on this machine."),
    ] = None,
    /,
    *,
    json: Json = False,
) -> int:
    """List where files are, add or remove a copy, or check that copies are whole.

    An input that has a copy at a site is not brought there; one that is not on this machine is
    fetched from where it is.

    Example: sureline catalog replicas add genome.fa meggie:/data/genome.fa
    """
    from sureline.catalog.replicas import Replicas

    replicas = Replicas()
    if what == "add":
        from sureline.compose.catalogued import described_replica

        added = described_replica(_named(file, "a file"), *_place(_named(place, "a SITE:PATH")))
        replicas.add([added])
        told = f"{added.logical} is at {added.site}:{added.path} ({added.size:,} bytes)"
        return _said({"added": added.logical, "replica": msgspec.to_builtins(added)}, told, json)
    if what == "rm":
        at = (None, None) if place is None else _place(place)
        count = replicas.remove(_named(file, "a file"), *at)
        if not count:
            raise UserError(f"no such copy of {file} is known; see: sureline catalog replicas")
        told = f"forgot {console.counted(count, 'copy', 'copies')} of {file}"
        return _said({"removed": file, "replicas": count}, told, json)
    rows = replicas.all() if file is None else replicas.of(file)
    if what == "check":
        from sureline.compose.catalogued import replica_trouble

        return _checked([(_shown(row), replica_trouble(row)) for row in rows], json)
    if json:
        console.print_json(
            {"file": str(replicas.path), "replicas": [msgspec.to_builtins(row) for row in rows]}
        )
    elif not rows:
        console.say("no copy of it is known" if file else f"no replica in {replicas.path}")
    else:
        _table(
            ("file", "site", "path", "bytes", "made by"),
            [
                (r.logical, r.site, r.path, f"{r.size:,}", r.task and f"{r.task} of {r.run}")
                for r in rows
            ],
        )
    return 0


def catalog_made(
    file: Annotated[str, Parameter(help="A file that a run here has made.")],
    /,
    *,
    again: Annotated[
        bool,
        Parameter(negative="", help="Make it again: run what led to it, as far as that is lost."),
    ] = False,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Say how a file was made: the task, its command, its inputs, and what made those.

    Example: sureline catalog made results/plot.png
    """
    from sureline.compose.derivations import derivation, make_again

    where = working_directory(directory)
    name = os.path.normpath(os.path.relpath(where / file, where))
    if again:
        from sureline.cli.options import machine
        from sureline.cli.running import adopt_orphans, report

        adopt_orphans()
        return report(make_again(where, name, machine(where, None, None, None, None)), json)
    steps = derivation(where, name)
    if json:
        console.print_json({"file": name, "steps": [msgspec.to_builtins(step) for step in steps]})
        return 0
    for step in steps:
        _say_step(step)
    console.say(f"make it again with: sureline catalog made {file} --again")
    return 0


def _say_step(step: Derivation) -> None:
    when, at = console.moment(step.at), f" at {step.site}" if step.site else ""
    console.say(f"{', '.join(step.outputs)}: made by {step.task} of run {step.run}{at}, {when}")
    for line in step.command.splitlines():
        console.say(f"    {line}")
    for name, digest, maker in step.inputs:
        console.say(f"  from {name} ({digest[:12]}), {maker or 'given by you'}")


def _named(value: str | None, what: str) -> str:
    if value is None:
        raise UserError(f"name {what}; see --help")
    return value


def _place(text: str) -> tuple[str, str]:
    """
    >>> _place("meggie:/data/a"), _place("/data/a")
    (('meggie', '/data/a'), ('here', '/data/a'))
    """
    from sureline.catalog.entries import HERE

    site, colon, path = text.partition(":")
    if colon and "/" not in site:
        return site, path
    return HERE, os.path.abspath(text)


def _shown(row: Replica) -> str:
    return f"{row.logical} at {row.site}:{row.path}"


def _said(data: dict[str, Any], told: str, as_json: bool) -> int:
    if as_json:
        console.print_json(data)
    else:
        console.say(told)
    return 0


def _checked(found: Sequence[tuple[str, str]], as_json: bool) -> int:
    if as_json:
        console.print_json({"checked": [{"what": w, "trouble": t or None} for w, t in found]})
    else:
        for what, trouble in found:
            console.say(f"{what}: {trouble or 'is as it should be'}")
        if not found:
            console.say("there is nothing to check")
    return 1 if any(trouble for _, trouble in found) else 0


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[n]) for row in (heads, *rows)) for n in range(len(heads))]
    for row in (heads, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.say("  ".join(cells).rstrip())


catalog.command(catalog_sites, name="sites")
catalog.command(catalog_transformations, name="transformations")
catalog.command(catalog_replicas, name="replicas")
catalog.command(catalog_made, name="made")
