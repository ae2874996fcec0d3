"""Commands for the machines of a grid: peer, peers, leave."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.gridding import Grid as OfGrid
from sureline.cli.options import Json, machine
from sureline.cli.running import adopt_orphans
from sureline.cli.wanted import Gpus, Memory, Tags
from sureline.workflow.mistakes import SurelineError, UserError

if TYPE_CHECKING:
    from sureline.compose.node import Listen, LiveNode
    from sureline.compose.piloting import Pilot
    from sureline.compose.ways_there import WayThere
    from sureline.overlay.membership import Member
    from sureline.peer.capacity import Capacity
    from sureline.peer.confine.rules import Rules
    from sureline.run.standing import Strikes
    from sureline.world.address import PeerName
    from sureline.world.identity.home import GridHome

GONE_WITHIN_S = 600.0
LOOK_EVERY_S = 0.1
MONEY_MAX = 1e12
INVITATION_BYTES_MAX = 10_000


def peer(
    *,
    join: Annotated[
        str | None,
        Parameter(
            help="An invitation, as 'sureline invite' printed it, or @FILE with it: enrol with it "
            "first."
        ),
    ] = None,
    grid: OfGrid = None,
    name: Annotated[
        str | None,
        Parameter(help="With --join: what this machine is to be called. Default: its host name."),
    ] = None,
    slots: Annotated[
        float | None,
        Parameter(help="Cores to offer; 0 to run nothing and only keep files. Default: all."),
    ] = None,
    memory: Memory = None,
    gpus: Gpus = None,
    tag: Tags = None,
    site: Annotated[
        str, Parameter(help="The site this machine belongs to, such as a room or a cluster.")
    ] = "",
    price: Annotated[
        float, Parameter(help="What a core costs for an hour; tasks then need a contract.")
    ] = 0.0,
    late_fee: Annotated[
        float,
        Parameter(help="With --price: what a core gives back for an hour of lateness."),
    ] = 0.0,
    cancel_fee: Annotated[
        float,
        Parameter(help="With --price: the share of its cost that a cancelled task gives back."),
    ] = 0.0,
    reserve_fee: Annotated[
        float,
        Parameter(help="With --price: what holding a place costs, as a share of the task's cost."),
    ] = 0.0,
    discount: Annotated[
        float,
        Parameter(help="With --price: the share that this machine can be bargained down by."),
    ] = 0.0,
    policy: Annotated[
        Literal["deadline", "priority", "fair"],
        Parameter(
            help="Whom 'peercomp' promises time here when it is short: whoever asks first, runs of "
            "higher priority, or those who had less of it."
        ),
    ] = "deadline",
    pilot: Annotated[
        bool,
        Parameter(
            negative="",
            help="Look whether this machine is well before joining, and leave it if it is not.",
        ),
    ] = False,
    lifetime: Annotated[
        str | None,
        Parameter(
            help="With --pilot: be gone by then, such as 2h; told to others, so that nothing is "
            "begun here that cannot end."
        ),
    ] = None,
    health: Annotated[
        str | None,
        Parameter(
            help="With --pilot: a program that ends with 0 if this machine is fit for your tasks."
        ),
    ] = None,
    queue: Annotated[
        bool,
        Parameter(negative="", help="Host the grid's task queue here, for 'latebinding'."),
    ] = False,
    readers: Annotated[
        int,
        Parameter(help="So many read files from here at a time at most; the others wait in turn."),
    ] = 8,
    cache: Annotated[str, Parameter(help="Disk space for files of the grid at most.")] = "10GB",
    sandbox: Annotated[
        Literal["auto", "none"],
        Parameter(
            help="How tasks are kept in their place: auto, by the strongest means that this "
            "machine has; none, not at all: they can do whatever you can."
        ),
    ] = "auto",
    network: Annotated[
        bool, Parameter(negative="--no-network", help="Let tasks use the network.")
    ] = False,
    share: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            help="A file or directory that tasks may read, besides the system's own, such as "
            "programs in your home. May be repeated.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        Parameter(
            help="HOST:PORT to listen on. Default: all addresses, the port used last or 7733, "
            "or any free one."
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        Parameter(help="The host name or address at which others reach this machine."),
    ] = None,
    interface: Annotated[
        str | None,
        Parameter(
            help="The network interface to serve on, such as eth0: its address is listened on and "
            "told to others. Default: the one by which other peers are reached."
        ),
    ] = None,
    outbound_only: Annotated[
        bool,
        Parameter(
            negative="",
            help="Others cannot dial this machine: it is reached through peers that can be "
            "dialled. Without this it asks them, and finds out.",
        ),
    ] = False,
    relay: Annotated[
        bool,
        Parameter(
            negative="--no-relay",
            help="Carry connections between peers of the grid that cannot dial each other.",
        ),
    ] = True,
    quiet: Annotated[
        bool, Parameter(name=["--quiet", "-q"], negative="", help="Tell of trouble only.")
    ] = False,
    json: Json = False,
) -> int:
    """Serve a grid from this machine: run its tasks, share its files, until told to leave.

    Ctrl-C lets running tasks finish and leaves; a second one stops them. With --json, a line of
    JSON tells when the peer is ready.

    Example: sureline peer --grid lab --slots 4 --site room-12
    """
    from sureline.compose.node import grid_loop, peer_directory
    from sureline.compose.serving import PeerSettings, ServingPeer
    from sureline.workflow.quantities import parse_size

    home = _enrolled(join, grid, name, quiet)
    if slots is not None and not 0 <= slots <= 100_000:
        raise UserError(f"--slots {slots:g} is not a number of cores; give 0 or more")
    if not 1 <= readers <= READERS_MAX:
        raise UserError(f"--readers {readers} is not a number of readers; give 1 to {READERS_MAX}")
    piloting = _pilot(pilot, lifetime, health)
    dealing = {
        **_dealing(price, late_fee, cancel_fee, reserve_fee, discount),
        "policy": policy,
    }
    try:
        cache_bytes = parse_size(cache)
    except ValueError as error:
        raise UserError(f"--cache: {error}") from None
    root = peer_directory(home)
    root.mkdir(mode=0o700, exist_ok=True)
    capacity = machine(root, slots or None, memory, gpus, tag)
    tell = (lambda sentence: None) if quiet else console.note
    if slots is None and home.holds_authority:
        tell("this home holds the grid's authority, so it runs no tasks unless --slots says so")
        slots = 0
    if slots == 0:
        capacity = type(capacity)(0, 0)
    rules = _rules(sandbox, network, share, capacity)
    settings = PeerSettings(
        capacity,
        site,
        dealing,
        _listen(listen, advertise, interface, home),
        max(1, cache_bytes),
        rules,
        piloting,
        queue,
        readers,
        "never" if outbound_only else "auto",
        relay,
    )
    serving = ServingPeer(home, settings, lambda node: _ready(node, settings, json, quiet), tell)
    _log_to_stderr()
    adopt_orphans()
    with grid_loop() as loop:
        loop.run(_serve(serving))
    return 0


PROCESSES_MAX = 4096
"""Of one task."""


def _rules(
    sandbox: Literal["auto", "none"], network: bool, share: list[str] | None, capacity: Capacity
) -> Rules:
    """What tasks may do here, by the means that this machine has; says what these lack."""
    from sureline.peer.confine.choosing import choose
    from sureline.peer.confine.rules import Rules

    for path in share or ():
        if not os.path.exists(path):
            raise UserError(f"--share {path}: there is no such file or directory")
    if not capacity.cores:
        return Rules()
    if sandbox == "none":
        console.note(
            "sandbox none: tasks of everybody who may submit run as you, with all that you can do"
        )
        return Rules()
    found = choose(network=network)
    if found.kind == "none":
        raise UserError(
            "this machine has no means to keep tasks in their place (neither Landlock nor user "
            "namespaces); --slots 0 shares files only, --sandbox none runs them all the same"
        )
    if found.word:
        console.note(f"sandbox {found.kind}: {found.word}")
    return Rules(
        found.kind,
        network,
        tuple(os.path.realpath(path) for path in share or ()),
        PROCESSES_MAX,
        capacity.memory_bytes,
        capacity.disk_bytes,
    )


LIFETIME_S_MIN = 60.0
READERS_MAX = 1000


def _pilot(pilot: bool, lifetime: str | None, health: str | None) -> Pilot | None:
    from sureline.compose.piloting import Pilot
    from sureline.workflow.quantities import parse_duration

    if not pilot:
        given = "--lifetime" if lifetime is not None else "--health" if health is not None else ""
        if given:
            raise UserError(f"{given} is a pilot's; add --pilot")
        return None
    lifetime_s = None
    if lifetime is not None:
        try:
            lifetime_s = parse_duration(lifetime)
        except ValueError as error:
            raise UserError(f"--lifetime: {error}") from None
        if lifetime_s < LIFETIME_S_MIN:
            raise UserError(f"--lifetime {lifetime} is too short; give {LIFETIME_S_MIN:g}s or more")
    if health is not None and not (os.path.isfile(health) and os.access(health, os.X_OK)):
        raise UserError(f"--health {health}: there is no such program that may be run")
    return Pilot(lifetime_s, "" if health is None else os.path.abspath(health))


def _dealing(
    price: float, late_fee: float, cancel_fee: float, reserve_fee: float, discount: float
) -> dict[str, float]:
    """What the halves of strategies on this machine are told."""
    for option, amount in (("--price", price), ("--late-fee", late_fee)):
        if not 0 <= amount < MONEY_MAX:
            raise UserError(f"{option} {amount:g} is not an amount of money; give 0 or more")
    shares = (
        ("--cancel-fee", cancel_fee),
        ("--reserve-fee", reserve_fee),
        ("--discount", discount),
    )
    for option, share in shares:
        if not 0 <= share <= 1:
            raise UserError(f"{option} {share:g} is not a share; give a number from 0 to 1")
    if not price and any((late_fee, cancel_fee, reserve_fee, discount)):
        raise UserError("fees and discounts are shares of a price; give one with --price")
    return {
        "per_core_hour": price,
        "late_fee": late_fee,
        "cancel_share": cancel_fee,
        "reserve_share": reserve_fee,
        "discount": discount,
    }


def _enrolled(join: str | None, grid: str | None, name: str | None, quiet: bool) -> GridHome:
    """The home to serve from; with an invitation, after enrolling."""
    import asyncio

    from sureline.world.identity.home import GridHome, home_directory
    from sureline.world.identity.invitation import Invitation
    from sureline.world.identity.joining import enrol
    from sureline.world.identity.whereabouts import default_name

    if join is None:
        if name is not None:
            raise UserError("--name goes with --join: an enrolled peer keeps the name it has")
        return GridHome.open(grid)
    invitation = Invitation.parse(_text_of(join))
    if grid is not None and grid != invitation.grid:
        raise UserError(
            f"the invitation is to grid {invitation.grid}, not {grid}; leave out --grid"
        )
    told: set[str] = set()

    def progress(sentence: str) -> None:
        if not quiet and sentence not in told and len(told) < 100:
            told.add(sentence)
            console.note(f"waiting for the issuer: {sentence}")

    credentials = asyncio.run(
        enrol(home_directory(), invitation, name or default_name(), on_progress=progress)
    )
    return credentials.home


def _text_of(join: str) -> str:
    """What was given, or is in the file that was: a command line can be read by others."""
    if not join.startswith("@"):
        return join
    try:
        with open(join[1:], encoding="ascii", errors="replace") as file:
            return file.read(INVITATION_BYTES_MAX).strip()
    except OSError as error:
        raise UserError(f"--join {join}: {error.strerror}") from None


def _listen(
    listen: str | None, advertise: str | None, interface: str | None, home: GridHome
) -> Listen:
    """Where to listen, as the options say; without, the port of the last time if it is free."""
    from sureline.compose.node import Listen
    from sureline.compose.serving import last_port
    from sureline.world.address import endpoint_of
    from sureline.world.identity.home import PORT_DEFAULT
    from sureline.world.identity.whereabouts import host_of_interface

    if interface is not None and (listen is not None or advertise is not None):
        raise UserError("--interface says where to listen; give it without --listen, --advertise")
    if listen is None:
        try:
            host = "0.0.0.0" if interface is None else host_of_interface(interface)
        except ValueError as error:
            raise UserError(f"--interface {interface}: {error}") from None
        port = _first_free([last_port(home) or PORT_DEFAULT, PORT_DEFAULT])
        return Listen(host, port, advertise or "")
    try:
        where = endpoint_of(f"peer@{listen}")
    except ValueError:
        raise UserError(f"--listen {listen!r} is not an address; write HOST:PORT") from None
    return Listen(where.host, where.port, advertise or "")


def _first_free(ports: list[int]) -> int:
    import socket

    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    return 0


def _ready(node: LiveNode, settings: Any, as_json: bool, quiet: bool) -> None:
    from sureline.world.address import name_of

    capacity = settings.capacity
    if as_json:
        console.print_json_line(
            {
                "grid": node.home.grid,
                "peer": node.credentials.name,
                "node": node.id,
                "relays": [name_of(relay) for relay in node.transport.berth.relays],
                "slots": capacity.cores,
                "memory_bytes": capacity.memory_bytes,
                "site": settings.site,
                "sandbox": settings.rules.kind,
                "price": settings.dealing["per_core_hour"],
                "pilot": settings.pilot is not None,
                "roles": sorted(node.credentials.identity.roles),
                "pid": os.getpid(),
                "ready_at": time.time(),
            }
        )
        console.flush()
    elif not quiet:
        cores = "1 core" if capacity.cores == 1 else f"{capacity.cores:g} cores"
        offers = cores if capacity.cores else "files only"
        console.say(
            f"{node.credentials.name} serves grid {node.home.grid} at "
            f"{node.id.partition('@')[2]} with {offers}; Ctrl-C leaves"
        )
        console.flush()


async def _serve(serving: Any) -> None:
    import asyncio

    from sureline.compose.serving import Going

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: serving.go(Going("interrupted", drain=True)))
    loop.add_signal_handler(signal.SIGTERM, lambda: serving.go(Going("told to leave")))
    loop.add_signal_handler(signal.SIGUSR1, lambda: serving.drain(Going("drained", drain=True)))
    await serving.serve()


def _log_to_stderr() -> None:
    """Refusals and the like, one line each."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log = logging.getLogger("sureline")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def peers(
    *,
    grid: OfGrid = None,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative="", help="Also those that have left or do not answer."),
    ] = False,
    reach: Annotated[
        bool,
        Parameter(negative="--no-reach", help="Try each, to say how it is reached from here."),
    ] = True,
    forgive: Annotated[
        str | None, Parameter(help="Forget what this home holds against a peer, and list nothing.")
    ] = None,
    json: Json = False,
) -> int:
    """List the peers of a grid: state, slots, load, site, and how each is reached from here.

    Asks a peer that is there, so it works from any home of the grid; then each is tried, for a few
    seconds. Who was found out lying is named below.

    Example: sureline peers --grid lab
    """
    from sureline.compose.elsewhere import visiting
    from sureline.compose.node import is_node
    from sureline.compose.strikes import remembered
    from sureline.compose.ways_there import ways_to

    if forgive is not None:
        return _forgive(grid, forgive, json)
    with visiting(grid) as (node, loop):
        node.remember_contacts()
        known = [m for m in node.membership.members().values() if is_node(m.node)]
        members = sorted(known, key=lambda m: m.node)
        there = [m.node for m in members if m.state in ("alive", "suspect")]
        ways = loop.run(ways_to(node.transport, there if reach else []))
        name = node.home.grid
        strikes = remembered(node.home)
    shown = [_peer_data(m, strikes, ways.get(m.node)) for m in members if all_ or m.node in there]
    if json:
        console.print_json({"grid": name, "peers": shown})
    else:
        _table(shown)
        for one in shown:
            if one["strikes"]:
                console.say(_held_against(one))
            if one["reached"] == "not at all":
                console.say(f"{one['peer']} cannot be reached from here: {one['unreached']}")
    return 0


def _forgive(grid: str | None, peer: str, json: bool) -> int:
    from sureline.compose.strikes import forgive
    from sureline.world.address import PeerName
    from sureline.world.identity.home import GridHome

    home = GridHome.open(grid)
    if not forgive(home, PeerName(peer)):
        raise UserError(f"nothing is held against {peer} in this home")
    if json:
        console.print_json({"grid": home.grid, "forgiven": peer})
    else:
        console.say(f"{peer} is forgiven; runs that go on now keep it set aside for their pause")
    return 0


def _held_against(one: dict[str, Any]) -> str:
    times = "once" if one["strikes"] == 1 else f"{one['strikes']} times"
    aside = f"; set aside for {console.duration(one['aside_s'])} more" if one["aside_s"] else ""
    return f"{one['peer']} was refuted {times}: {one['refuted']}{aside}"


def _peer_data(
    member: Member, strikes: Mapping[PeerName, Strikes], way: WayThere | None
) -> dict[str, Any]:
    from sureline.world.address import PeerName, endpoint_of, name_of

    where, offer = endpoint_of(member.node), member.offer
    now, held = time.time(), strikes.get(PeerName(where.name))
    return {
        "peer": where.name,
        "address": member.node.partition("@")[2],
        "state": member.state,
        "reached": "not tried" if way is None else way.reached,
        "through": "" if way is None else way.through,
        "unreached": "" if way is None else way.why_not,
        "relays": [name_of(relay) for relay in member.relays],
        "slots": offer.cores,
        "memory_bytes": offer.memory_bytes,
        "gpus": offer.gpus,
        "tags": dict(offer.tags),
        "site": "".join(letter if letter.isprintable() else "?" for letter in offer.site),
        "price": offer.price,
        "pilot": bool(offer.extras.get("pilot")),
        "ends": None if offer.ends_at is None else console.moment(offer.ends_at),
        "roles": list(offer.roles),
        "load": round(member.load, 3),
        "waiting": member.waiting,
        "since": console.moment(offer.started_at),
        "strikes": 0 if held is None else held.forgiven(now),
        "aside_s": 0.0 if held is None else round(held.left_s(now), 1),
        "refuted": "" if held is None else held.reason,
    }


def _table(shown: list[dict[str, Any]]) -> None:
    priced = any(one["price"] for one in shown)  # where all is free, nobody looks for a price
    head = ["PEER", "STATE", "SLOTS", "LOAD", "WAITING", *(["PRICE"] if priced else [])]
    lines = [[*head, "SITE", "REACHED", "ADDRESS"]] + [
        [
            one["peer"],
            one["state"],
            f"{one['slots']:g}",
            f"{one['load']:g}",
            str(one["waiting"]),
            *([f"{one['price']:g}"] if priced else []),
            one["site"] or "-",
            f"through {one['through']}" if one["through"] else one["reached"],
            one["address"],
        ]
        for one in shown
    ]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    for line in lines:
        cells = [
            cell.rjust(width) if 2 <= k < len(head) else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        console.say("  ".join(cells).rstrip())


def leave(
    *,
    grid: OfGrid = None,
    drain: Annotated[
        bool, Parameter(negative="", help="Let running tasks finish; take no new ones.")
    ] = False,
    wait: Annotated[
        bool, Parameter(negative="--no-wait", help="Wait until the peer has gone.")
    ] = True,
    json: Json = False,
) -> int:
    """Have this home's peer leave its grid in order; 'sureline peer' brings it back.

    Its tasks are given back to be run elsewhere, and the others are told at once.

    Example: sureline leave --grid lab --drain
    """
    from sureline.world.identity.home import GridHome

    home = GridHome.open(grid)
    serving = home.serving()
    if serving is None:
        raise UserError(f"no peer serves grid {home.grid} from this home; there is nobody to leave")
    try:
        os.kill(serving.pid, signal.SIGUSR1 if drain else signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just gone
    except PermissionError:
        raise UserError(
            f"the peer is a process of another user ({serving.pid}); have that user stop it"
        ) from None
    gone = _wait_until_gone(home, serving.pid) if wait else home.serving() is None
    name = serving.node.partition("@")[0]
    if json:
        console.print_json({"grid": home.grid, "peer": name, "gone": gone})
    else:
        console.say(f"{name} {'has left' if gone else 'is leaving'} grid {home.grid}")
    return 0


def _wait_until_gone(home: GridHome, pid: int) -> bool:
    give_up_at = time.monotonic() + GONE_WITHIN_S
    while True:
        serving = home.serving()
        if serving is None or serving.pid != pid:
            return True
        if time.monotonic() > give_up_at:
            raise SurelineError(
                f"the peer (process {pid}) has not left within {GONE_WITHIN_S:.0f} s; its tasks "
                "may need longer"
            )
        time.sleep(LOOK_EVERY_S)
