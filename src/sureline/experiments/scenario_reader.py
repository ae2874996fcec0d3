"""Reading scenario files, and finding those that come with the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec

from sureline.assembly.words import messages
from sureline.experiments.distributions import Distribution, constant
from sureline.experiments.others import OthersJobs
from sureline.experiments.scenario import (
    BEHAVIOURS,
    GENERATED,
    HONEST,
    KINDS,
    PEERS,
    PROTOCOLS,
    STANDBY,
    SUBMITTER,
    UNDONE_BY,
    WHATS,
    Checks,
    Dealing,
    Fault,
    LinkSettings,
    NetworkSettings,
    Scenario,
    SiteSettings,
    Workload,
)
from sureline.experiments.toml_table import (
    ScenarioError,
    TomlTable,
    load,
    parse_rate,
    parse_signed_duration,
)
from sureline.strategies import known, settings_of, strategy
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.mistakes import UserError
from sureline.workflow.quantities import parse_duration, parse_size
from sureline.workflow.read import read_bytes

MACHINES_MAX = 1_000_000
TASKS_MAX = 1_000_000
RUNS_MAX = 1000
STANDBYS_MAX = 10
DELAY_FORMS = ("uniform", "lognormal", "exponential", "choice")
_NAME = re.compile(r"[A-Za-z][\w-]*")


def shipped() -> dict[str, str]:
    """The scenarios that come with the program: name -> description."""
    found = {}
    for entry in resources.files("sureline.experiments").joinpath("scenarios").iterdir():
        if entry.name.endswith(".toml"):
            values, _ = load(entry.read_bytes(), entry.name)
            found[entry.name.removesuffix(".toml")] = str(values.get("description", ""))
    return dict(sorted(found.items()))


def find_scenario(written: str) -> Scenario:
    """The scenario in a file, or the shipped one of that name."""
    path = Path(written)
    if path.suffix == ".toml" or path.exists():
        return read_scenario(read_bytes(path), file=written, beside=path.parent)
    inside = resources.files("sureline.experiments").joinpath("scenarios", f"{written}.toml")
    if "/" in written or not inside.is_file():
        hint = did_you_mean(written, shipped(), "list those there are: sureline simulate --list")
        raise UserError(f"there is no scenario {written!r}; {hint}")
    read = read_scenario(inside.read_bytes(), file=f"{written}.toml", beside=None)
    return msgspec.structs.replace(read, written=written)


def read_scenario(data: bytes, *, file: str, beside: Path | None) -> Scenario:
    """Raises ScenarioError with all mistakes. Paths in it are relative to `beside`."""
    values, lines = load(data, file)
    found = Collector(file)
    top = TomlTable(values, (), lines, found)
    grid = top.table("grid")
    starts_within_s = grid.duration("starts_within", 0.0)
    sites = _sites(grid)
    scenario = Scenario(
        name=top.text("name", Path(file).stem),
        description=top.text("description"),
        seed=top.count("seed", 1, most=2**63 - 1),
        duration_s=top.duration("duration", 3600.0),
        sites=sites,
        network=_network(top.table("network"), sites),
        workload=_workload(top, beside, sites),
        starts_within_s=starts_within_s,
        faults=(),
        checks=_checks(top.table("checks")),
        written=file,
    )
    scenario = msgspec.structs.replace(scenario, faults=_faults(top.table("faults"), scenario))
    top.done()
    if found:
        raise ScenarioError(found.mistakes())
    return scenario


def _sites(grid: TomlTable) -> tuple[SiteSettings, ...]:
    tables = grid.tables("site")
    common = _site(grid, _USUAL, one=not tables)
    grid.done()
    sites: list[SiteSettings] = []
    for table in tables:
        name = table.text("name")
        if not _NAME.fullmatch(name) or name in (PEERS, SUBMITTER, STANDBY):
            table.wrong("name", f"'{name}' cannot be a site's name", "use letters and digits")
        elif any(name == other.name for other in sites):
            table.wrong("name", f"'{name}' is given twice", "give one of them another name")
        sites.append(_site(table, msgspec.structs.replace(common, name=name), one=True))
        table.done()
    return tuple(sites) or (common,)


_USUAL = SiteSettings(
    name="m",
    machines=8,
    cores=constant(4.0),
    memory_bytes=16 * 10**9,
    disk_bytes=10**12,
    cache_bytes=50 * 10**9,
    keeps_cache=True,
    speed=constant(1.0),
    background=constant(0.0),
    others=OthersJobs(),
    clock_offset_s=constant(0.0),
    clock_drift=constant(0.0),
)


def _site(table: TomlTable, base: SiteSettings, one: bool) -> SiteSettings:
    """A site as its table changes `base`; only `one` whole site has a number of machines."""
    signed = parse_signed_duration
    machines = table.count("machines", base.machines, 1, MACHINES_MAX)
    if not one and "machines" in table:
        table.wrong("machines", "there are sites", "give each [[grid.site]] its own number")
    return SiteSettings(
        name=base.name,
        machines=machines,
        cores=table.distribution("cores", base.cores, least=1, most=1e6),
        memory_bytes=table.size("memory", base.memory_bytes),
        disk_bytes=table.size("disk", base.disk_bytes),
        cache_bytes=table.size("cache", base.cache_bytes),
        keeps_cache=table.flag("keeps_cache", base.keeps_cache),
        speed=table.distribution("speed", base.speed, least=0.001, most=1e6),
        background=table.distribution("background", base.background, most=0.99),
        others=OthersJobs(
            table.distribution("others", base.others.share, most=1.0),
            table.distribution("others_every", base.others.every_s, parse_duration),
        ),
        clock_offset_s=table.distribution(
            "clock_offset", base.clock_offset_s, signed, least=-1e9, most=1e9
        ),
        clock_drift=table.distribution("clock_drift", base.clock_drift, least=-0.5, most=0.5),
        dealing=_dealing(table, base.dealing),
        unknown=_unknown(table) if "unknown" in table else base.unknown,
    )


def _unknown(table: TomlTable) -> tuple[str, ...]:
    tags = table.texts("unknown")
    known = sorted(str(message.__struct_config__.tag) for message in messages())
    for tag in tags:
        if tag not in known:
            hint = did_you_mean(tag, known, "a message is named as in `simulate --json`")
            table.wrong("unknown", f"there is no message '{tag}'", hint)
    return tags


def _dealing(table: TomlTable, base: Dealing) -> Dealing:
    return Dealing(
        price=table.distribution("price", base.price, most=1e12),
        late_fee=table.number("late_fee", base.late_fee, most=1e12),
        cancel_fee=table.number("cancel_fee", base.cancel_fee, most=1.0),
        reserve_fee=table.number("reserve_fee", base.reserve_fee, most=1.0),
        discount=table.number("discount", base.discount, most=1.0),
        behaviour=table.text("behaviour", base.behaviour, BEHAVIOURS),
        overbook=table.number("overbook", base.overbook, 1.0, 100.0),
        hang=table.number("hang", base.hang, most=1.0),
    )


def _network(table: TomlTable, sites: Sequence[SiteSettings]) -> NetworkSettings:
    usual = LinkSettings(Distribution("lognormal", (0.0003, 0.3)), 125e6)
    link = _link(table, usual)
    between = []
    for one in table.tables("link"):
        ends = one.texts("between")
        if len(ends) != 2:
            one.wrong("between", "not two sites", 'write between = ["here", "there"]')
            ends = ("", "")
        for end in dict.fromkeys(ends):
            _check_site(one, "between", end, sites)
        between.append((ends[0], ends[1], _link(one, link)))
        one.done()
    table.done()
    return NetworkSettings(link, tuple(between))


def _check_site(table: TomlTable, key: str, name: str, sites: Sequence[SiteSettings]) -> None:
    names = [site.name for site in sites]
    if name and name not in names:
        hint = did_you_mean(name, names, "known are " + ", ".join(names))
        table.wrong(key, f"'{name}' is not a site", hint)


def _link(table: TomlTable, base: LinkSettings) -> LinkSettings:
    return LinkSettings(
        delay_s=table.distribution("delay", base.delay_s, parse_duration, forms=DELAY_FORMS),
        bandwidth_bytes_s=table.read("bandwidth", base.bandwidth_bytes_s, parse_rate),
        loss=table.number("loss", base.loss, most=1.0),
        duplication=table.number("duplication", base.duplication, most=1.0),
        reordering=table.flag("reordering", base.reordering),
    )


def _workload(top: TomlTable, beside: Path | None, sites: Sequence[SiteSettings]) -> Workload:
    if "workload" not in top:
        top.missing("workload", "write [workload] and what is to be run below it")
        top.table("workload")
        return Workload("chain")
    table = top.table("workload")
    kind = table.text("kind", "workflow" if "file" in table else "", KINDS)
    if not kind:
        if "kind" not in table:
            table.missing("kind", "choose one of " + ", ".join(KINDS))
        return Workload("chain")
    begin_s = table.duration("begin", 10.0)
    if kind in PROTOCOLS:
        plain = Workload(kind, begin_s=begin_s)
        workload = msgspec.structs.replace(
            plain,
            count=table.count("count", plain.count, 1, 10**7),
            every_s=table.distribution("every", constant(0.01), parse_duration),
        )
    else:
        workload = _runs(table, Workload(kind, begin_s=begin_s), beside)
        _check_site(table, "site", workload.site, sites)
        one = sum(site.machines for site in sites) == 1 and workload.runs == 1
        if strategy(workload.strategy).where == "here" and not one:
            hint = "give the grid `machines = 1` and one run, or choose another strategy"
            table.wrong("strategy", f"'{workload.strategy}' is for one machine and one run", hint)
        if strategy(workload.strategy).where == "here" and workload.standbys:
            table.wrong("standbys", f"'{workload.strategy}' is for one machine", "leave it out")
        _check_paid(table, workload, sites)
    table.done()
    return workload


def _check_paid(table: TomlTable, workload: Workload, sites: Sequence[SiteSettings]) -> None:
    """Only one strategy pays; with another one, machines that ask a price would run nothing."""
    if strategy(workload.strategy).spends:
        return
    spending = next(one.name for one in known().values() if one.spends)
    if workload.budget is not None:
        hint = f'write strategy = "{spending}", or leave `budget` out'
        table.wrong("strategy", f"'{workload.strategy}' keeps no budget", hint)
    elif all(site.dealing.price != constant(0.0) for site in sites):
        hint = f'write strategy = "{spending}", or leave the prices out'
        table.wrong("strategy", f"'{workload.strategy}' does not pay", hint)
    elif any(site.dealing.behaviour != HONEST for site in sites):
        hint = f'write strategy = "{spending}", or leave `behaviour` out'
        table.wrong("strategy", f"'{workload.strategy}' makes no contracts to be broken", hint)


def _runs(table: TomlTable, plain: Workload, beside: Path | None) -> Workload:
    """What all workloads that are workflows share, then what their kind adds."""
    retries = table.count("retries", -1, most=1000)
    workload = msgspec.structs.replace(
        plain,
        strategy=table.text("strategy", plain.strategy, tuple(known())),
        site=table.text("site"),
        runs=table.count("runs", 1, 1, RUNS_MAX),
        every_s=table.distribution("every", plain.every_s, parse_duration),
        cancel_s=table.duration("cancel", 0.0) or None,
        standbys=table.count("standbys", 0, most=STANDBYS_MAX),
        takeover_s=table.duration("takeover", 0.0),
        look_s=table.distribution("look", plain.look_s, parse_duration, least=1.0),
        fail=table.number("fail", 0.0, most=1.0),
        fail_kinds=_fail_kinds(table.table("fail_kinds")) if "fail_kinds" in table else {},
        retries=None if retries < 0 else retries,
        output_bytes=table.distribution("output", plain.output_bytes, parse_size),
        within_s=table.duration("within", 0.0) or None,
        budget=table.number("budget", 0.0, most=1e12) if "budget" in table else None,
        surety=table.number("surety", plain.surety, most=1.0),
        repair=table.flag("repair", plain.repair),
    )
    if "settings" in table:
        workload = _set(table, workload)
    if plain.kind in GENERATED:
        return _generated(table, workload)
    written = table.text("file")
    if not written:
        table.missing("file", "name a workflow (YAML) or a trace (WfFormat JSON)")
    path = Path(written)
    return msgspec.structs.replace(
        workload,
        file=path if beside is None or path.is_absolute() else beside / path,
        work_s=_work(table, None),
        work_factor=table.number("scale", 1.0, 1e-9, 1e9),
        size_factor=table.number("sizes", 1.0, 0.0, 1e9),
    )


def _set(table: TomlTable, workload: Workload) -> Workload:
    """The strategy's settings, as `--with` gives them."""
    given = table.table("settings").taken()
    try:
        settings_of(strategy(workload.strategy), given)
    except UserError as error:
        table.wrong("settings", str(error))
        return workload
    return msgspec.structs.replace(workload, settings=given)


def _work(table: TomlTable, default: Distribution | None) -> Distribution | None:
    if "work" not in table:
        return default
    return table.distribution("work", constant(1.0), parse_duration)


def _fail_kinds(table: TomlTable) -> dict[str, float]:
    return {kind: table.number(kind, 0.0, most=1.0) for kind in table.keys_given}


def _generated(table: TomlTable, workload: Workload) -> Workload:
    usual = Distribution("lognormal", (30.0, 0.5))
    workload = msgspec.structs.replace(
        workload,
        work_s=_work(table, usual),
        cores=table.distribution("cores", workload.cores, least=0.001, most=1e6),
    )
    match workload.kind:
        case "chain":
            return msgspec.structs.replace(workload, tasks=table.count("tasks", 20, 1, TASKS_MAX))
        case "fork-join":
            return msgspec.structs.replace(
                workload,
                width=table.count("width", 10, 1, TASKS_MAX),
                levels=table.count("stages", 3, 1, 10_000),
            )
        case "layered":
            return msgspec.structs.replace(
                workload,
                tasks=table.count("tasks", 100, 1, TASKS_MAX),
                levels=table.count("levels", 10, 1, TASKS_MAX),
                parents=table.count("parents", 3, 1, 1000),
            )
        case _:
            return msgspec.structs.replace(workload, width=table.count("images", 16, 2, 10_000))


def _faults(table: TomlTable, scenario: Scenario) -> tuple[Fault, ...]:
    found = []
    for one in table.tables("script"):
        if "at" not in one:
            one.missing("at", 'say when, such as at = "30s"')
        at_s = one.duration("at", 0.0)
        found.append(msgspec.structs.replace(_fault(one, scenario), at_s=at_s))
        one.done()
    for one in table.tables("random"):
        if ("every" in one) == ("per_minute" in one):
            one.missing("every", "give either `every` or `per_minute`")
        every = one.distribution("every", constant(60.0), parse_duration, least=1e-6)
        share = one.number("per_minute", 0.0, most=60.0)
        fault = msgspec.structs.replace(
            _fault(one, scenario),
            at_s=one.duration("from", 0.0),
            until_s=one.duration("until", float("inf")),
            every_s=every if "every" in one else None,
            per_minute=share if "per_minute" in one else None,
            times=one.count("times", 1, 1) if "times" in one else None,
        )
        found.append(msgspec.structs.replace(fault, count=fault.count or 1))
        one.done()
    table.done()
    return tuple(found)


def _fault(table: TomlTable, scenario: Scenario) -> Fault:
    what = table.text("what", "", WHATS)
    if "what" not in table:
        table.missing("what", "choose one of " + ", ".join(WHATS))
    parting = what in ("partition", "cut")
    everywhere = parting or what == "heal"
    whom = () if everywhere else table.texts("whom") or (PEERS,)
    lasts = None
    if "for" in table:
        lasts = table.distribution("for", constant(60.0), parse_duration)
        if what and what not in UNDONE_BY:
            table.wrong("for", f"'{what}' does not last", "leave it out")
    factor = 1.0
    if what in ("slow", "slow_disk"):
        factor = table.number("factor", 0.5, 1e-6, 1e6)
    elif what == "corrupt":
        factor = table.number("share", 0.5, 0.0, 1.0)
    by_s = constant(-3600.0)
    if what == "clock":
        by_s = table.distribution("by", by_s, parse_signed_duration, least=-1e9, most=1e9)
    groups = table.groups("groups") if parting else ()
    if parting and len(groups) < 2:
        table.wrong("groups", "fewer than two groups", 'write groups = [["a"], ["b"]]')
    elif what == "cut" and len(groups) > 2:
        table.wrong("groups", "more than two groups", "cut one link after another")
    count = None if everywhere or "count" not in table else table.count("count", 1, 1)
    for key, words in [("whom", whom), *(("groups", group) for group in groups)]:
        for word in words:
            if not scenario.meant(word):
                known = [PEERS, SUBMITTER, STANDBY, *(site.name for site in scenario.sites)]
                hint = did_you_mean(word, known, "name a machine, a site, peers or submitter")
                table.wrong(key, f"'{word}' is nobody here", hint)
    return Fault(what, whom, count=count, lasts_s=lasts, factor=factor, by_s=by_s, groups=groups)


def _checks(table: TomlTable) -> Checks:
    usual = Checks()
    checks = Checks(
        finish=table.flag("finish", usual.finish),
        makespan_s=table.duration("makespan", 0.0) or None,
        messages_per_second=table.count("messages_per_second", usual.messages_per_second, 1),
        found=table.number("found", usual.found, most=1.0),
        reached=table.number("reached", usual.reached, most=1.0),
    )
    table.done()
    return checks
