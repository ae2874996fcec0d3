"""What this machine is called, and where others can reach it, as well as it can know that."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Sequence

from sureline.world.address import endpoint_of
from sureline.world.identity.home import PORT_DEFAULT
from sureline.world.identity.names import as_name


def default_name() -> str:
    """What a peer on this machine is called unless the user says otherwise."""
    return as_name(socket.gethostname())


def default_host(towards: Sequence[str] = ()) -> str:
    """The address of the interface by which this machine reaches others, these first; its loopback
    if none.

    An address serves better than the host's name: in many labs names resolve to nothing, or on
    the host itself to its loopback.
    """
    for host in (*towards, "192.0.2.1", "2001:db8::1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, 9))  # sends nothing: the system only chooses a way
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


_ADDRESS_OF_INTERFACE = 0x8915
"""SIOCGIFADDR of Linux."""


def host_of_interface(name: str) -> str:
    """The address of a network interface. Raises ValueError if there is none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            asked = struct.pack("256s", name.encode()[:15])
            said = fcntl.ioctl(probe.fileno(), _ADDRESS_OF_INTERFACE, asked)
            return socket.inet_ntoa(said[20:24])
        except OSError:
            names = ", ".join(sorted(name for _, name in socket.if_nameindex()))
            raise ValueError(f"no interface with an IPv4 address; there are {names}") from None


def hosts_of_interfaces() -> list[str]:
    """The addresses of this machine, but for its loopback."""
    found = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(ValueError):
            found.append(host_of_interface(name))
    return [host for host in found if not host.startswith("127.")]


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
