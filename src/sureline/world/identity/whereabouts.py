"""What this machine is called, and where others can reach it, as well as it can know that."""

from __future__ import annotations

import ipaddress
import socket

from sureline.world.address import endpoint_of
from sureline.world.identity.home import PORT_DEFAULT
from sureline.world.identity.names import as_name


def default_name() -> str:
    """What a peer on this machine is called unless the user says otherwise."""
    return as_name(socket.gethostname())


def default_host() -> str:
    """The address of the interface by which this machine reaches others; its loopback if none.

    An address serves better than the host's name: in many labs names resolve to nothing, or on
    the host itself to its loopback.
    """
    for family, somewhere in (
        (socket.AF_INET, ("192.0.2.1", 9)),
        (socket.AF_INET6, ("2001:db8::1", 9)),
    ):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(somewhere)  # sends nothing: the system only chooses a way
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def address_of(host: str, port: int) -> str:
    """
    >>> address_of("::1", 7733), address_of("lab7", 7733)
    ('[::1]:7733', 'lab7:7733')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def default_address() -> str:
    """Where a peer of this machine will be found if it serves with no options."""
    return address_of(default_host(), PORT_DEFAULT)


def is_of_this_machine(address: str) -> bool:
    """Does the address mean something else on every machine: is it a loopback?"""
    host = endpoint_of(f"peer@{address}").host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
