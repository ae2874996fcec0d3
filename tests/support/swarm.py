"""Very many real peers on one machine: a few processes, each with hundreds of them.

Everything of a peer is real: its home and certificate, its sockets with TLS, membership, hash
table, file cache and transfers, what it keeps on disk. Only what a task does is a timer: a command
`pause SECONDS BYTES` ends after so long, with outputs of so many bytes that depend on its inputs
alone. A process of its own for each peer, and for each task, would need more memory than a machine
has.

    python swarm.py WHERE FIRST COUNT [SITE ...]     serves the homes p<FIRST> ... of WHERE

With SWARM_SMALL_EVERY=N in the environment, one of N peers has a cache for two files.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import hashlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop

from sureline.compose.node import Listen, LiveNode, peer_directory
from sureline.compose.serving import Going, PeerSettings, ServingPeer
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import CommandJob, JobEnded, JobStarted
from sureline.peer.store import BlobStore
from sureline.strategies.peercomp.machine import LanesKept
from sureline.world.address import name_of
from sureline.world.awake import AwakeTime
from sureline.world.identity import certificates, disk
from sureline.world.identity.authority import Authority
from sureline.world.identity.home import GridHome, Issuer, encode_contacts, make_home
from sureline.world.protocol import Job, JobEvent, JobHandle

GRID = "lab"
AT_ONCE = 20
"""Peers of one process that start at the same time."""
BEHIND_S = 0.2
"""No further one starts while what is due in this process comes later than this: peers that are
there already would take each other for dead."""
CONTACTS = 5
"""Whom a peer knows when it starts: not all come by way of one."""
SMALL_EVERY = int(os.environ.get("SWARM_SMALL_EVERY", "0"))
"""One of so many peers has a cache that is full most of the time."""
SMALL_BYTES = 2500
_profiles: list[cProfile.Profile] = []
PAUSE = re.compile(r"pause ([0-9.]+)(?: ([0-9]+))?$")


def make_homes(where: Path, count: int) -> None:
    """The homes p0 (which holds the authority), p1, ...; all in the role `run,submit,drive`."""
    authority = Authority.create(where / "homes" / "p0", GRID, "p0")
    for number in range(1, count):
        enrol(authority, where / "homes" / f"p{number}", f"p{number}")


def enrol(authority: Authority, home: Path, name: str) -> None:
    """As an invitation would, without a network."""
    key = certificates.new_key()
    invitation = authority.invite(
        roles=("run", "submit", "drive"), expires_s=3600.0, addresses=["127.0.0.1:1"], name=name
    )
    certificate = authority.redeem(invitation.id, key.public_key(), name)
    make_home(home)
    issuer = Issuer("p0", invitation.addresses, invitation.id.hex())
    files = {
        "ca.crt": authority.home.authority_certificate(),
        "contacts.json": encode_contacts(()),
        "issuer.json": msgspec.json.encode(issuer),
        "revocations": authority.revocations().signed,
        "peer.pem": certificates.own_pem(key, certificate),
    }

    def fill(path: Path) -> None:
        for file, content in files.items():
            disk.write(path / file, content)

    assert disk.make_directory(GridHome(home, GRID).path, fill), home


class TimerRunner:
    """Does as if: see above."""

    def __init__(self, loop: asyncio.AbstractEventLoop, root: Path) -> None:
        self._loop = loop
        self._store = BlobStore(root)
        (root / "work").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._timers: dict[JobHandle, tuple[asyncio.Handle, Callable[[JobEvent], None]]] = {}

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        assert isinstance(job, CommandJob), job
        found = PAUSE.match(job.run)
        assert found is not None, job.run
        seconds, size = float(found[1]), int(found[2] or 0)
        handle: JobHandle = object()
        begun_at = self._loop.time()

        def begin() -> None:
            # Not before: a loop that was held up runs timers first, and a job would end unbegun.
            if handle in self._timers:
                self._timers[handle] = (self._loop.call_later(seconds, end), on_event)
                on_event(JobStarted())

        def end() -> None:
            del self._timers[handle]
            inputs = {file.path: file.digest for file in job.inputs}
            outputs = tuple(
                self._store.put(content(path, inputs, size), path) for path in job.outputs
            )
            elapsed_s = self._loop.time() - begun_at
            on_event(JobEnded("succeeded", 0, elapsed_s=elapsed_s, outputs=outputs))

        self._timers[handle] = (self._loop.call_soon(begin), on_event)
        return handle

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        found = self._timers.pop(handle, None)
        if found is not None:
            found[0].cancel()
            self._loop.call_soon(found[1], JobEnded("cancelled"))

    async def close(self) -> None:
        for timer, _ in self._timers.values():
            timer.cancel()
        self._timers.clear()


def content(path: str, inputs: Mapping[str, str], size: int) -> bytes:
    """Of an output, by its path, the digests of the inputs and its size."""
    of = "\n".join([path, *sorted(f"{name} {digest}" for name, digest in inputs.items())])
    seed = hashlib.sha256(of.encode()).hexdigest().encode()
    return (seed * (size // len(seed) + 1))[: max(size, len(seed))]


class Swarm:
    """Processes of peers; leave the block to end them. `sites` takes turns."""

    def __init__(self, where: Path, count: int, per_process: int, sites: Sequence[str]) -> None:
        self.where = where
        self.count = count
        make_homes(where, count)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._per_process = per_process
        self._sites = sites

    def __enter__(self) -> Swarm:
        try:
            self._start()
        except BaseException:  # nobody would end those that have started
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.serve(0, 1)
        known = [self.node("p0")]
        for first in range(1, self.count, self._per_process):
            count = min(self._per_process, self.count - first)
            contacts = encode_contacts(tuple(known[-CONTACTS:]))
            for number in range(first, first + count):
                disk.write(self.where / f"homes/p{number}/grids/{GRID}/contacts.json", contacts)
            self.serve(first, count)
            known.append(self.node(f"p{first}"))

    def serve(self, first: int, count: int) -> None:
        """Returns when they can be reached."""
        ready = self.where / f"ready-{first}"
        ready.unlink(missing_ok=True)
        with open(self.where / f"swarm-{first}.log", "ab") as log:
            process = self._processes[first] = subprocess.Popen(
                [sys.executable, __file__, str(self.where), str(first), str(count), *self._sites],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while not ready.exists():
            assert process.poll() is None, (self.where / f"swarm-{first}.log").read_text()[-2000:]
            time.sleep(0.1)

    def node(self, name: str) -> str:
        return (self.where / "nodes" / name).read_text()

    def kill(self, first: int) -> None:
        """All peers of one process, as a power cut would."""
        process = self._processes.pop(first)
        process.kill()
        process.wait(60)

    def stop(self, first: int) -> None:
        self._processes[first].send_signal(signal.SIGSTOP)

    def go_on(self, first: int) -> None:
        self._processes[first].send_signal(signal.SIGCONT)

    def cut(self, *firsts: int) -> None:
        """The peers of these processes and all others do not hear each other any more, though all
        go on; `cut()` heals it."""
        apart = {name for first in firsts for name in self._names(first)}
        everybody = {name for first in self._processes for name in self._names(first)}
        for first, process in self._processes.items():
            others = everybody - apart if first in firsts else apart
            _tell(self.where / f"cut-{first}", dict.fromkeys(others, 1))
            process.send_signal(signal.SIGHUP)

    def _names(self, first: int) -> list[str]:
        count = 1 if first == 0 else min(self._per_process, self.count - first)
        return [f"p{number}" for number in range(first, first + count)]

    def damage(self, first: int) -> int:
        """Every stored file of these peers is another one of its length; how many these are."""
        count = 0
        for name in self._names(first):
            blobs = self.where / "homes" / name / "grids" / GRID / "peer" / "blobs"
            for path in [path for path in blobs.rglob("*") if path.is_file()]:
                spoilt = path.with_name(f"{path.name}.spoilt")
                spoilt.write_bytes(bytes(path.stat().st_size))
                spoilt.replace(path)
                count += 1
        return count

    def env(self, name: str) -> dict[str, str]:
        return {**os.environ, "SURELINE_HOME": str(self.where / "homes" / name)}

    def usage(self) -> tuple[float, int]:
        """Seconds of CPU and bytes of memory that all of them took."""
        seconds, held = 0.0, 0
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        for process in self._processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / ticks
            held += int(fields[21]) * page
        return seconds, held

    def promised(self) -> dict[str, int]:
        """Peers that have promised time, or run something by a promise, and in how many lanes."""
        found: dict[str, int] = {}
        for told in self._ask(signal.SIGUSR1, "promised"):
            found |= msgspec.json.decode(told, type=dict[str, int])
        return found

    def traffic(self) -> Counter[str]:
        """What all of them have sent so far, by the messages' tags; and, under names without a dot,
        bytes, connections that were opened and those that are open. With SWARM_PROFILE in the
        environment, the first question begins profiles and the second writes them there."""
        found: Counter[str] = Counter()
        for told in self._ask(signal.SIGUSR2, "traffic"):
            found.update(msgspec.json.decode(told, type=dict[str, int]))
        return found

    def _ask(self, by: signal.Signals, what: str) -> Iterator[bytes]:
        for first, process in self._processes.items():
            told = self.where / f"{what}-{first}"
            told.unlink(missing_ok=True)
            process.send_signal(by)
            while not told.exists():
                assert process.poll() is None, f"the peers from p{first} on are gone"
                time.sleep(0.1)
            yield told.read_bytes()

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self._processes.values():
            process.wait(60)


async def _serve(where: Path, first: int, count: int, sites: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    (where / "nodes").mkdir(exist_ok=True)
    tasks: list[asyncio.Task[None]] = []
    peers: list[ServingPeer] = []
    nodes: list[LiveNode] = []
    starting = asyncio.Semaphore(AT_ONCE)
    ready: list[asyncio.Future[None]] = []

    async def one(number: int, started: asyncio.Future[None]) -> None:
        home = GridHome.open(GRID, where / "homes" / f"p{number}")

        def is_ready(node: LiveNode) -> None:
            nodes.append(node)
            (where / "nodes" / f"p{number}.new").write_text(str(node.id))
            (where / "nodes" / f"p{number}.new").replace(where / "nodes" / f"p{number}")
            started.set_result(None)

        site = sites[number % len(sites)] if sites else ""
        settings = PeerSettings(
            Capacity(cores=0 if number == 0 else 1, memory_bytes=1 << 30),
            site=site,
            listen=Listen("127.0.0.1"),
            cache_bytes=SMALL_BYTES if SMALL_EVERY and number % SMALL_EVERY == 1 else 1 << 30,
            queue=number == 0,
        )
        runner = TimerRunner(loop, peer_directory(home)) if number else None
        peer = ServingPeer(home, settings, is_ready, print, runner)
        peers.append(peer)
        await peer.serve()

    awake = AwakeTime(loop.time)
    for number in range(first, first + count):
        await starting.acquire()
        await _until_not_behind(loop, awake)
        started: asyncio.Future[None] = loop.create_future()
        started.add_done_callback(lambda _: starting.release())
        ready.append(started)
        tasks.append(asyncio.ensure_future(one(number, started)))
        tasks[-1].add_done_callback(_fail_loudly)
    await asyncio.gather(*ready)
    (where / f"ready-{first}").write_text("")
    loop.add_signal_handler(signal.SIGUSR1, lambda: _tell_promises(where / f"promised-{first}"))
    loop.add_signal_handler(signal.SIGUSR2, lambda: _tell_traffic(where, first, nodes))
    loop.add_signal_handler(signal.SIGHUP, lambda: _cut(where / f"cut-{first}", nodes))
    loop.add_signal_handler(signal.SIGTERM, lambda: [p.go(Going("told to")) for p in peers])
    await asyncio.gather(*tasks)


async def _until_not_behind(loop: asyncio.AbstractEventLoop, awake: AwakeTime) -> None:
    """Until this process finds the time for what is due; not for ever, whatever keeps it."""
    give_up_at = loop.time() + 30.0
    while True:
        due_s = loop.time() + 0.02
        await asyncio.sleep(0.02)
        late_s = loop.time() - due_s
        awake.fired(due_s)
        if (late_s < BEHIND_S and awake.lag_s < 2 * BEHIND_S) or loop.time() > give_up_at:
            return


def _cut(told: Path, nodes: Sequence[LiveNode]) -> None:
    """These peers are not spoken to, nor let in, until another list comes."""
    others = msgspec.json.decode(told.read_bytes(), type=dict[str, int])
    for node in nodes:
        node.transport._greeter.dropped.clear()
        for name in others:
            node.transport.drop(name)


def _tell_promises(to: Path) -> None:
    """Of all peers of this process, as their lanes see it now."""
    found = {}
    for half in gc.get_objects():
        if isinstance(half, LanesKept):
            half.lanes.summary(time.time())  # what is over by now is forgotten
            if half.lanes.promised:
                busy = half.lanes.count - half.lanes.idle()
                found[name_of(half._machine.me)] = busy
    _tell(to, found)


def _tell_traffic(where: Path, first: int, nodes: Sequence[LiveNode]) -> None:
    found: Counter[str] = Counter()
    for node in nodes:
        stats = node.transport.stats()
        found.update(stats.sent)
        found.update(bytes=stats.bytes_out, opened=stats.opened, open=stats.links)
    _tell(where / f"traffic-{first}", found)
    if "SWARM_PROFILE" in os.environ:
        if _profiles:
            _profiles[0].disable()
            _profiles[0].dump_stats(f"{os.environ['SWARM_PROFILE']}.{first}")
        else:
            _profiles.append(cProfile.Profile())
            _profiles[0].enable()


def _tell(to: Path, found: Mapping[str, int]) -> None:
    to.with_suffix(".new").write_bytes(msgspec.json.encode(found))
    to.with_suffix(".new").replace(to)


def _fail_loudly(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        print(repr(task.exception()), file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    place, first_, count_, *sites_ = sys.argv[1:]
    # As the command does for one peer (`cli/entry`): a walk here is over all that they keep.
    gc.set_threshold(50_000, 20, 50 * int(count_))
    uvloop.run(_serve(Path(place), int(first_), int(count_), sites_))
