"""Commands for grids and who belongs to them: grid new, grid ls, invite, revoke."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json
from sureline.workflow.mistakes import UserError
from sureline.world.identity.errors import IdentityError

if TYPE_CHECKING:
    from sureline.world.identity.home import GridHome

Grid = Annotated[
    str | None, Parameter(help="Which grid; may be left out if this home has only one.")
]

grid = cyclopts.App(
    name="grid",
    help="""Make a grid, or list the grids of this home.

    A grid is a group of machines that trust one another, by certificates of its own authority.
    Grids live in $SURELINE_HOME, by default in the user's configuration directory.""",
)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What is wrong with a home, a grid or an invitation is the user's to mend."""
    try:
        yield
    except IdentityError as error:
        raise UserError(str(error)) from None


def grid_new(
    name: str,
    /,
    *,
    peer: Annotated[
        str | None,
        Parameter(help="What this machine is called in the grid. Default: its host name."),
    ] = None,
    json: Json = False,
) -> int:
    """Make a grid. This home holds its authority from now on, and is its first peer.

    Only this home can invite and revoke: keep its directory, and keep it to yourself.

    Example: sureline grid new lab
    """
    from sureline.world.identity import certificates
    from sureline.world.identity.authority import Authority
    from sureline.world.identity.home import home_directory
    from sureline.world.identity.whereabouts import default_name

    with told():
        called = default_name() if peer is None else peer
        authority = Authority.create(home_directory(), name, called)
    if json:
        fingerprint = certificates.fingerprint(authority.certificate).hex()
        home = str(authority.home.home)
        console.print_json({"grid": name, "peer": called, "home": home, "fingerprint": fingerprint})
    else:
        console.say(f"made grid {name}; this home is its first peer, {called}")
        console.say(f"serve with:        sureline peer --grid {name}")
        console.say(f"invite others with: sureline invite --grid {name}")
    return 0


def grid_ls(*, json: Json = False) -> int:
    """List the grids that this home belongs to.

    Example: sureline grid ls
    """
    from sureline.world.identity.home import GridHome, grid_names, home_directory

    with told():
        home = home_directory()
        rows = [_row(GridHome(home, name)) for name in grid_names(home)]
    if json:
        console.print_json({"home": str(home), "grids": rows})
    elif not rows:
        console.say(f"no grid in {home}; make one with: sureline grid new NAME")
    for row in [] if json else rows:
        console.say(_line(row))
    return 0


def _row(home: GridHome) -> dict[str, Any]:
    """One grid as data; what is wrong with it does not hide the others."""
    from sureline.world.identity.credentials import Credentials

    try:
        credentials = Credentials.load(home)
        serving = home.serving()
    except IdentityError as error:
        return {"grid": home.grid, "trouble": str(error)}
    identity = credentials.identity
    return {
        "grid": home.grid,
        "peer": identity.name,
        "roles": sorted(identity.roles),
        "expires": console.moment(identity.not_after),
        "authority": home.holds_authority,
        "serving": None if serving is None else serving.node,
        "trouble": credentials.refused(identity),
    }


def _line(row: dict[str, Any]) -> str:
    if "peer" not in row:
        return f"{row['grid']}: {row['trouble']}"
    told = f"{row['grid']}: this home is {row['peer']} ({', '.join(row['roles'])})"
    if row["authority"]:
        told += ", holds the authority"
    told += f", serves at {row['serving']}" if row["serving"] else ", does not serve"
    return told + (f"; {row['trouble']}" if row["trouble"] else "")


def grid_passphrase(
    *,
    grid: Grid = None,
    remove: Annotated[
        bool, Parameter(negative="", help="Have the keys readable without one again.")
    ] = False,
    json: Json = False,
) -> int:
    """Protect the keys of this home by a passphrase, or change it.

    It is asked for on the terminal, or taken from $SURELINE_NEW_PASSPHRASE. From then on, whatever
    uses the keys needs it: a file that $SURELINE_PASSPHRASE_FILE names, $SURELINE_PASSPHRASE, or
    the terminal. A peer that serves already goes on.

    Example: sureline grid passphrase --grid lab
    """
    from sureline.world.identity import passphrase
    from sureline.world.identity.authority import Authority
    from sureline.world.identity.credentials import Credentials
    from sureline.world.identity.home import GridHome

    with told():
        home = GridHome.open(grid)
        credentials = Credentials.load(home)
        credentials.own_key()  # asks for the old one first, if there is one
        secret = None if remove else passphrase.new_passphrase()
        with home.locked():
            if home.holds_authority:
                Authority.open(home).lock(secret)
            credentials.lock(secret)
    if json:
        console.print_json({"grid": home.grid, "locked": not remove})
    else:
        word = "have no passphrase" if remove else "have a passphrase"
        console.say(f"the keys of grid {home.grid} in this home {word} now")
    return 0


grid.command(grid_new, name="new")
grid.command(grid_ls, name="ls")
grid.command(grid_passphrase, name="passphrase")


def invite(
    *,
    grid: Grid = None,
    role: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            help="What the peer may do: run (run tasks of others), submit (have its own run by "
            "others), drive (go on with others' runs when their driver is gone), or several as "
            "run,submit. Default: all three, for a machine whose owner you trust; give run alone "
            "to one that is only to work.",
        ),
    ] = None,
    expires: Annotated[
        str, Parameter(help="How long the invitation is good, e.g. 10min or 1d.")
    ] = "1h",
    address: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            help="Where the new machine finds this one: HOST:PORT. May be repeated. Default: "
            "where this home's peer serves, or would serve.",
        ),
    ] = None,
    name: Annotated[
        str, Parameter(help="What the peer will be called. Default: as it wishes.")
    ] = "",
    json: Json = False,
) -> int:
    """Print an invitation: one word that lets one machine join the grid, once.

    Take it to the other machine and run 'sureline peer --join INVITATION' there. Whoever has it
    can use it, so send it as you would send a password.

    Example: sureline invite --role run --expires 30min
    """
    from sureline.workflow.quantities import parse_duration
    from sureline.world.identity.authority import Authority
    from sureline.world.identity.home import GridHome

    try:
        expires_s = parse_duration(expires)
    except ValueError as error:
        raise UserError(f"--expires: {error}") from None
    with told():
        home = GridHome.open(grid)
        authority = Authority.open(home)
        addresses = address or [_own_address(home, quiet=json)]
        roles = _roles(role)
        invitation = authority.invite(
            roles=roles, expires_s=expires_s, addresses=addresses, name=name
        )
    if json:
        console.print_json(
            {
                "invitation": str(invitation),
                "id": invitation.id.hex(),
                "grid": home.grid,
                "addresses": list(invitation.addresses),
                "roles": sorted(roles),
                "expires": console.moment(time.time() + expires_s),
            }
        )
    else:
        _warn_of_loopback(addresses)
        console.say(str(invitation))
    return 0


def _roles(given: list[str] | None) -> list[str]:
    from sureline.world.identity.names import ROLES_DEFAULT, check_roles

    if given is None:
        return list(ROLES_DEFAULT)
    words = [word.strip() for text in given for word in text.split(",")]
    return sorted(check_roles(words))


def _own_address(home: GridHome, *, quiet: bool) -> str:
    """Where this home's peer serves, or will."""
    from sureline.world.identity.whereabouts import default_address

    serving = home.serving()
    if serving is not None:
        return serving.node.partition("@")[2]
    address = default_address()
    if not quiet:
        console.note(
            f"note: no peer serves from this home yet; the invitation can be used once "
            f"'sureline peer --grid {home.grid}' serves at {address}"
        )
    return address


def _warn_of_loopback(addresses: list[str]) -> None:
    from sureline.world.identity.whereabouts import is_of_this_machine

    if all(map(is_of_this_machine, addresses)):
        console.note(
            f"note: {', '.join(addresses)} is reached from this machine only; for others add "
            "--address HOST:PORT"
        )


def revoke(peer: str, /, *, grid: Grid = None, json: Json = False) -> int:
    """Put a peer out of the grid, for good: no peer accepts it from then on.

    The word spreads within seconds, from the peer that serves from this home, or when one next
    does. The machine can only come back with a new invitation, under a new name.

    Example: sureline revoke lab7
    """
    from sureline.world.identity.authority import Authority
    from sureline.world.identity.home import GridHome

    with told():
        home = GridHome.open(grid)
        revoked = Authority.open(home).revoke(peer)
        serving = home.serving()
    if json:
        console.print_json(
            {
                "grid": home.grid,
                "peer": peer,
                "version": revoked.version,
                "serving": None if serving is None else serving.node,
            }
        )
        return 0
    console.say(f"revoked {peer} in grid {home.grid}")
    if serving is None:
        console.note(
            "note: no peer serves from this home; others hear of it once "
            f"'sureline peer --grid {home.grid}' does"
        )
    return 0
