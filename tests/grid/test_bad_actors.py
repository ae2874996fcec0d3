"""Bad actors against real `sureline peer` processes: refused or slowed down, one line in the log,
memory bounded, everybody else served, and nobody dies of it."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from absurd import Absurd
from grid_lab import GRID, GridLab
from grids import admit, new_grid
from surely import until
from uvloop import new_event_loop

from sureline.assembly.words import messages
from sureline.overlay.kademlia.messages import Find, Found
from sureline.overlay.membership import Offer
from sureline.overlay.membership.messages import Gossip, Join, MemberRecord
from sureline.peer.files.wire import Describe, encode
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.messages import Attach, Bind, Fenced, Finished
from sureline.run.keeping import KeepRun
from sureline.run.options import CancelRun
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.address import at, endpoint_of
from sureline.world.identity import certificates
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome
from sureline.world.identity.invitation import Invitation
from sureline.world.net.bulk_wire import BulkError
from sureline.world.net.codec import VERSION, Codec, Hello
from sureline.world.net.transport import NetTransport

CODEC = Codec(messages())
PEERS = ("p0", "p1", "p2")
GONE = (OSError, asyncio.IncompleteReadError)
GROWTH_BYTES_MAX = 64 << 20
FLOW = "name: small\ntasks:\n  one:\n    run: echo done > one.txt\n    outputs: [one.txt]\n"


class BadLab(GridLab):
    """Three peers, and homes for those who are let in and should not have been."""

    nodes: dict[str, str]

    def authority(self) -> Authority:
        return Authority.open(GridHome.open(GRID, self.home("p0")))

    def enrolled(self, name: str, *roles: str) -> Credentials:
        return admit(self.authority(), self.home(name), name, roles)

    def lines(self, text: str, *names: str) -> int:
        logs = [self.peers[name].log for name in names or PEERS]
        return sum(text in line for log in logs for line in log.splitlines())

    def memory_bytes(self) -> dict[str, int]:
        return {name: _resident_bytes(self.peers[name].process.pid) for name in PEERS}


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with BadLab(tmp_path_factory.mktemp("lab")) as made:
        made.start(len(PEERS))
        made.nodes = {name: GridHome.open(GRID, made.home(name)).serving().node for name in PEERS}
        yield made


@pytest.fixture(autouse=True)
def unharmed(lab):
    """After every attack: all peers live, and none had more to say than a line."""
    before = lab.memory_bytes()
    lines = {name: len(lab.peers[name].log.splitlines()) for name in PEERS}
    began = time.monotonic()
    yield
    lines_max = 40 + (time.monotonic() - began)  # who goes on is mentioned every ten seconds
    for name in PEERS:
        peer = lab.peers[name]
        assert peer.process.poll() is None, peer.log
        assert "Traceback" not in peer.log and "Exception" not in peer.log, peer.log
        assert len(peer.log.splitlines()) - lines[name] < lines_max, peer.log
    for name, now in lab.memory_bytes().items():
        assert now - before[name] < GROWTH_BYTES_MAX, f"{name} grew by {now - before[name]}"


def attack(test) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(test)


class Raw:
    """A connection of one's own making."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer

    async def greet(self, name: str, node: str) -> None:
        hello = Hello(VERSION, GRID, f"{name}@127.0.0.1:1", endpoint_of(node).name)
        self.writer.write(CODEC.encode("", "", hello))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        answer = CODEC.decode(await self.reader.readexactly(size))[2]
        assert isinstance(answer, Hello), answer

    async def until_cut(self) -> None:
        async with asyncio.timeout(30):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except GONE:
                pass


@asynccontextmanager
async def raw(node: str, context: ssl.SSLContext | None = None):
    where = endpoint_of(node)
    reader, writer = await asyncio.open_connection(where.host, where.port, ssl=context)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


async def _until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - any condition of a test, not one event
        await asyncio.sleep(0.01)


def _is_found(message: object, number: int) -> bool:
    return isinstance(message, Found) and message.number == number


class Client:
    """A process of an enrolled peer that says whatever it likes."""

    def __init__(self, transport: NetTransport) -> None:
        self.transport = transport
        self.heard: list[object] = []
        self.gone: list[str] = []
        transport.attach(lambda sender, to, message: self.heard.append(message), self.gone.append)
        self._number = 0

    def say(self, node: str, part: str, message) -> None:
        self.transport.send(at(node, part), at(self.transport.node, "x"), message)

    async def echo(self, node: str) -> None:
        """What was said before has been taken when this returns, and the peer answers."""
        self._number += 1
        number = self._number
        self.say(node, "kademlia", Find(number, bytes(20)))
        async with asyncio.timeout(60):
            await _until(lambda: any(_is_found(m, number) for m in self.heard))


@asynccontextmanager
async def client(credentials: Credentials):
    loop = asyncio.get_running_loop()
    transport = await NetTransport.listen(
        loop, "127.0.0.1", 0, credentials, CODEC, name_suffix="bad"
    )
    try:
        yield Client(transport)
    finally:
        await transport.close()


def careless(context: ssl.SSLContext) -> ssl.SSLContext:
    """It would talk to anybody."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def anonymous() -> ssl.SSLContext:
    return careless(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


# -- those who are not of the grid ----------------------------------------------------------------


def test_without_a_certificate_or_with_another_grids_nobody_gets_in(lab, tmp_path):
    other = Credentials.load(new_grid(tmp_path / "other", GRID, "p1").home)  # the same names

    async def test():
        for _ in range(20):
            async with raw(lab.nodes["p1"], anonymous()) as stranger:
                stranger.writer.write(CODEC.encode("", "", Hello(VERSION, GRID, "p2@h:1", "p1")))
                await stranger.until_cut()
            async with raw(lab.nodes["p2"], careless(other.client_context())) as foreign:
                await foreign.until_cut()
            async with raw(lab.nodes["p0"], anonymous()) as joining:
                joining.writer.write(b"\0\0\0\x10" + Random(1).randbytes(16))
                await joining.until_cut()

    attack(test())
    until(lambda: lab.lines("it has no certificate", "p1") == 1)
    until(lambda: lab.lines("its certificate is refused", "p2") == 1)


@pytest.mark.parametrize("how", ["expired", "reused"])
def test_a_bad_invitation_lets_nobody_in_and_leaves_nothing_behind(lab, how):
    authority = lab.authority()
    address = lab.nodes["p0"].partition("@")[2]
    expires_s = 0.01 if how == "expired" else 600.0
    invitation = authority.invite(roles=("run",), expires_s=expires_s, addresses=[address])
    if how == "reused":
        authority.redeem(invitation.id, certificates.new_key().public_key(), "earlier")
    assert Invitation.parse(str(invitation)) == invitation
    said = lab.do(how, "peer", "--join", str(invitation), "--name", how, "--slots=1")
    assert said.code in (1, 2), said
    (sentence,) = said.err.strip().splitlines()
    assert sentence.startswith("sureline: ") and "ask for a new one" in sentence, said.err
    home = lab.home(how)
    assert not [path for path in home.rglob("*") if path.is_file()], list(home.rglob("*"))


def test_a_revoked_peer_is_refused_with_its_certificate_still_valid(lab):
    credentials = lab.enrolled("traitor", "run", "submit")

    async def before():
        async with client(credentials) as traitor:
            await traitor.echo(lab.nodes["p2"])

    async def after():
        async with client(credentials) as traitor:
            for name in PEERS:
                for _ in range(20):
                    traitor.say(lab.nodes[name], "kademlia", Find(1, bytes(20)))
            async with asyncio.timeout(30):
                await _until(lambda: set(traitor.gone) == set(lab.nodes.values()))
            assert traitor.heard == []

    attack(before())
    assert lab.do("p0", "revoke", "traitor").code == 0
    for name in PEERS:  # it is spread within seconds
        revoked = GridHome.open(GRID, lab.home(name))
        until(lambda home=revoked: "traitor" in Credentials.load(home).revocations.names)
    attack(after())
    for name in PEERS:
        until(lambda name=name: lab.lines("let in: peer traitor has been refused", name) == 1)


# -- those who are, and may not -------------------------------------------------------------------


def test_what_needs_a_role_is_not_heard_from_those_who_lack_it(lab, tmp_path):
    worker = lab.enrolled("worker", "run")
    boss = lab.enrolled("boss", "submit")
    mark = tmp_path / "mark"
    job = CommandJob("0.1", "t", 1, f"touch {mark}")

    async def test():
        node = lab.nodes["p1"]
        async with client(worker) as bad:
            for _ in range(100):
                bad.say(node, "peer", Attach("r1", 1, 1))
                bad.say(node, "peer", Bind("r1", "t", 1, job, Needs(), epoch=1))
                bad.say(node, "run.r1", CancelRun())
                bad.say(node, "keeper", KeepRun("r1", 9, 0, 5, 0, b"graph"))
            await bad.echo(node)
        async with client(boss) as bad:
            for _ in range(100):
                bad.say(node, "run.r1", Finished("r1", "t", 1, JobEnded("succeeded")))
                bad.say(node, "run.r1", Fenced("r1", 99))
            await bad.echo(node)

    attack(test())
    assert lab.lines("without the role 'submit|drive'", "p1") == 1
    assert lab.lines("without the role 'run'", "p1") == 1
    assert not mark.exists()
    assert not (lab.peers["p1"].root / "kept" / "r1").exists()


# -- those who do not keep to the protocol --------------------------------------------------------


def test_broken_frames_end_the_connection_and_nothing_else(lab):
    credentials = lab.enrolled("broken", "run", "submit")
    random = Random(7)

    async def test():
        node = lab.nodes["p1"]
        for size in (1, 5, 1000, 100_000):  # before TLS
            async with raw(node) as peer:
                peer.writer.write(b"\x16\x03\x01\x02\x00" * (size > 5) + random.randbytes(size))
                if size > 5:
                    await peer.until_cut()
        huge = b"\xff\xff\xff\xff" + bytes(1000)
        for data in [huge, random.randbytes(1 << 18), b"\0\0\0\0", b"\0\0\0\x01\xc1"] * 5:
            async with raw(node, credentials.client_context()) as peer:
                await peer.greet("broken", node)
                peer.writer.write(data)
                await peer.until_cut()
            async with raw(node, credentials.client_context()) as peer:
                peer.writer.write(data.lstrip(b"\0").ljust(5000, b"\xff"))  # no greeting
                await peer.until_cut()
        async with client(credentials) as honest:
            await honest.echo(node)

    attack(test())
    assert lab.lines("broken@127.0.0.1:1 sent a bad frame", "p1") == 1
    assert lab.lines("broken at 127.0.0.1 was not let in: bad frame", "p1") == 1


ABSURD_NEEDS = [
    Needs(cores=float("nan")),
    Needs(cores=float("inf")),
    Needs(cores=-1000.0, memory_bytes=-1),
    Needs(tags=(("x", -1), ("x", -1))),
]
JOB = CommandJob("0.1", "t", 1, "true")
ABSURD_JOBS = [
    CommandJob("../../x", "t", 1, "true"),
    CommandJob("0.1", "t", 1, "true", outputs=("../../../mark",)),
    CommandJob("0.1", "t", 1, "true", outputs=("/etc/hostname",)),
    CommandJob("0.1", "t", 1, "true", (FileRecord("../x", "0" * 64, -1),)),
    CommandJob("0.1", "t", 1, "true", (FileRecord("x", "../../x", 1 << 63),)),
    CommandJob("0.1", "t", 1, "true", timeout_s=float("nan")),
    CommandJob("0.1", "t", 1, "true", env={"A=\0": "\0"}),
    CommandJob("0.1", "t", 1, "nul\0nul", cores=float("nan")),
]


def test_absurd_messages_of_one_who_may_do_everything_harm_nobody(lab):
    """The same as in `test_absurd_messages`, on whole processes with their real parts."""
    credentials = lab.enrolled("absurd", "run", "submit")
    absurd = Absurd(11)
    parts = ("kademlia", "membership", "news", "renewal", "peer", "keeper", "run.x", "")
    offer = Offer(1.0, 1, site="\x1b[2J", roles=("run",))

    async def test():
        node = lab.nodes["p1"]
        async with client(credentials) as bad:
            binds = [(JOB, needs) for needs in ABSURD_NEEDS] + [(j, Needs()) for j in ABSURD_JOBS]
            for run, (job, needs) in enumerate(binds):
                bad.say(node, "peer", Attach(f"absurd-{run}", 1, 1))
                await bad.echo(node)  # it is known when that is on disk
                bad.say(node, "peer", Bind(f"absurd-{run}", "t", 1, job, needs, epoch=1))
            for where in ("no address", "a@b:c", "evil@h..x:1", "\x1b[31m@127.0.0.1:9"):
                fake = MemberRecord(where, 5, 0, "alive", offer)
                bad.say(node, "membership", Gossip(0, (fake,)))
                bad.say(node, "membership", Join(0, fake))
            for number in range(2000):
                message = absurd.message()
                if not isinstance(message, Bind):  # those above are enough; these run for real
                    bad.say(node, absurd.random.choice(parts), message)
                if number % 50 == 49:  # more would not fit its own queue
                    await bad.echo(node)

    attack(test())
    assert lab.lines("was dropped") == 0, "a handler raised"
    lab.until(lambda: set(lab.present("p2")) >= set(PEERS), "all to be there")


# -- those who want too much ----------------------------------------------------------------------


async def half_open(lab, count: int, over: asyncio.Event) -> None:
    standing = []
    for number in range(count):
        where = endpoint_of(lab.nodes[PEERS[number % 3]])
        try:
            _, writer = await asyncio.open_connection(where.host, where.port)
        except OSError:
            continue
        if number % 2:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        standing.append(writer)
    await over.wait()
    for writer in standing:
        writer.transport.abort()


async def slowly(lab, credentials, over: asyncio.Event) -> None:
    """A frame that never ends, a byte at a time."""
    node = lab.nodes["p1"]
    async with raw(node, credentials.client_context()) as peer:
        await peer.greet("greedy+slow", node)
        peer.writer.write(b"\0\x01\0\0")
        while not over.is_set():
            peer.writer.write(b"x")
            await asyncio.sleep(0.05)


async def flood(lab, credentials, name: str, messages, over: asyncio.Event) -> int:
    """Valid messages, as fast as they are taken."""
    node = lab.nodes["p1"]
    batch = b"".join(CODEC.encode("x", part, m) for part, m in messages) * 50
    sent = 0
    async with raw(node, credentials.client_context()) as peer:
        await peer.greet(name, node)
        reading = asyncio.ensure_future(peer.until_cut())
        while not over.is_set():
            peer.writer.write(batch)
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                continue
            sent += 50 * len(messages)
        reading.cancel()
    return sent


async def bulk_flood(lab, credentials, over: asyncio.Event) -> None:
    digest = "0" * 64
    async with client(credentials) as greedy:

        async def ask() -> None:
            while not over.is_set():
                try:
                    await greedy.transport.ask_bulk(lab.nodes["p1"], encode(Describe(digest)))
                except (BulkError, OSError):
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(ask() for _ in range(20)))


def greed(lab, where: Path, half_open_count: int, rounds: int) -> None:
    """All of it at once, while others look around and run a workflow."""
    credentials = lab.enrolled("greedy", "run", "submit")
    finds = [("kademlia", Find(n, bytes([n]) * 20, values=True)) for n in range(20)]
    probes = [("membership", Join(0)), ("membership", Gossip(0)), ("news", Find(1, bytes(20)))]

    async def served() -> None:
        for number in range(rounds):
            said = await asyncio.to_thread(lab.do, "p2", "peers", "--json")
            assert said.code == 0, said
            assert {p["peer"] for p in said.json["peers"]} >= set(PEERS), said.out
            (where / "flow.yaml").write_text(FLOW.replace("done", f"done {number}"))
            ran = await asyncio.to_thread(
                lab.do, "p0", "run", "flow.yaml", "--grid", GRID, "--quiet", where=where
            )
            assert ran.code == 0, ran
            assert (where / "one.txt").read_text() == f"done {number}\n"

    async def test() -> None:
        over = asyncio.Event()
        attacks = [
            asyncio.ensure_future(one)
            for one in (
                half_open(lab, half_open_count, over),
                slowly(lab, credentials, over),
                flood(lab, credentials, "greedy+finds", finds, over),
                flood(lab, credentials, "greedy+probes", probes, over),
                bulk_flood(lab, credentials, over),
            )
        ]
        try:
            await asyncio.sleep(0.5)  # let them begin
            assert not any(one.done() for one in attacks), attacks
            await served()
        finally:
            over.set()
            done = await asyncio.gather(*attacks, return_exceptions=True)
        assert not [one for one in done if isinstance(one, Exception)], done
        assert min(done[2], done[3]) > 10_000, "the flood was no flood"

    attack(test())


@pytest.fixture
def where(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_the_greedy_are_slowed_down_and_the_others_served(lab, where):
    greed(lab, where, 300, 1)
    assert lab.lines("is slowed down", "p1") >= 2
    assert lab.lines("greedy+finds@127.0.0.1:1 sends faster", "p1") <= 4


@pytest.mark.soak
def test_minutes_of_greed(lab, where):
    greed(lab, where, 5000, 20)
