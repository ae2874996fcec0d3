"""Grids for tests: a grid with its authority, and homes that were let in without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from sureline.world.identity import certificates, disk
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome, Issuer, make_home

NOWHERE = "127.0.0.1:9"


def new_grid(home: Path, grid: str = "lab", name: str = "issuer") -> Authority:
    """A grid made in this home; `Credentials.load(authority.home)` are its first peer's."""
    return Authority.create(home, grid, name)


def admit(
    authority: Authority, home: Path, name: str, roles: Sequence[str] = ("run", "submit")
) -> Credentials:
    """The credentials of another home, as an enrolment would have made it."""
    invitation = authority.invite(roles=roles, expires_s=60, addresses=[NOWHERE])
    key = certificates.new_key()
    certificate = authority.redeem(invitation.id, key.public_key(), name)
    return settle(authority, home, certificates.own_pem(key, certificate))


def settle(authority: Authority, home: Path, own_pem: bytes) -> Credentials:
    """A home with this key and certificate."""
    grid = authority.home.grid
    issuer = Issuer(authority.home.issuer().name, (NOWHERE,))

    def fill(path: Path) -> None:
        disk.write(path / "ca.crt", certificates.pem_of(authority.certificate))
        disk.write(path / "peer.pem", own_pem)
        disk.write(path / "issuer.json", msgspec.json.encode(issuer))

    make_home(home)
    assert disk.make_directory(GridHome(home, grid).path, fill)
    return Credentials.load(GridHome.open(grid, home))
