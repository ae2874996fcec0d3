"""Messages that are valid by their types and absurd in what they say, and nodes to say them to."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import msgspec
from grids import new_grid
from msgspec import inspect
from signed import ROLL, Chartered
from toy_grid import Machine, Timer, ToyGrid, ToyPlace

from sureline.assembly.driver import Charge, RunDriver
from sureline.assembly.ground import Standing
from sureline.assembly.node import GridNode
from sureline.assembly.peer import Certificates, GridPeer, Workplace
from sureline.assembly.words import messages
from sureline.compose.run_copies import KeptJournals
from sureline.journal import events
from sureline.overlay.kademlia.messages import Find
from sureline.overlay.membership import Offer
from sureline.overlay.membership.messages import Join, MemberRecord
from sureline.peer.capacity import Capacity
from sureline.peer.files.cache import FileCache
from sureline.peer.files.marks import CacheMarks
from sureline.run.engine import Hearers
from sureline.run.options import Options, Past
from sureline.strategies import known
from sureline.workflow.model import Command, Graph, Task
from sureline.world.address import at, node_of, peer_of
from sureline.world.agent import Agent
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.renewing import accepting, issuing
from sureline.world.net.codec import BadFrameError, CannotTravelError, Codec
from sureline.world.protocol import Message

MESSAGES = messages()
CODEC = Codec(MESSAGES)
KINDS = {CODEC.tags[kind]: kind for kind in MESSAGES}
RUN = "run-1"
VICTIM, HONEST, DRIVER = "v@127.0.0.1:1", "w@127.0.0.1:2", "v+7@127.0.0.1:3"
MALLORY = "m@127.0.0.1:4"

INTS = (0, 1, -1, 2, 7, 255, 1 << 31, 1 << 53, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1)
FLOATS = (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324)
TEXTS = (
    "", "m", "v", "w", "run", "submit", RUN, f"{RUN}x", "t0", "t1", "out.0", "out.1", "alive", "@",
    "/", "..", "../../../../tmp/x", "/etc/passwd", ".sureline/journal.db", "nul\0nul", "a@b",
    "a@b:c", "a@:1", "a@h:99999", "x@127.0.0.1:9", "y@[::1]:9", "é\u2028\U0001f600", "n" * 500,
    "l" * 20_000, "v@127.0.0.1:1", "w@127.0.0.1:2", "v@10.0.0.1:1", "m@127.0.0.1:4",
    "m+1@127.0.0.1:5", "z@" + "h" * 200 + ":1", "q@h..x:1", "v@127.0.0.1:1/kademlia",
    "w@127.0.0.1:2/peer", "0" * 64, "m@127.0.0.1:4/kademlia", "f" * 16, "blob:x:-1", "stat:1:2",
)  # fmt: skip
NODES = (VICTIM, HONEST, DRIVER, MALLORY, "x@127.0.0.1:9", "v@10.0.0.1:1", "w@10.0.0.1:1")
LIKELY: dict[str, tuple[Any, ...]] = {
    "run": (RUN,),
    "task": tuple(f"t{i}" for i in range(40)),
    "epoch": (0, 1, 1, 2),
    "attempt": (1, 1, 2),
    "serial": (1, 2, 3, 4),
    "page": (0, 1, -1),
    "node": NODES,
    "name": ("v", "w", "m"),
    "label": ("0.1", "1.1"),
}
"""By a field's name: what an agent might look at twice."""
RARE = ("run.cancel", "peer.fenced")
"""What may rightly end the run, which then has nothing more to say."""
ANSWERS: dict[str, tuple[str, ...]] = {
    "run.attach": ("peer.attached", "peer.attached", "peer.finished"),
    "run.bind": ("peer.started", "peer.progressed", "peer.finished", "peer.refused"),
    "keeper.keep_run": ("keeper.kept",),
    "keeper.keep_events": ("keeper.kept",),
    "kademlia.find": ("kademlia.found",),
    "kademlia.store": ("kademlia.stored",),
    "kademlia.cast": ("kademlia.taken", "kademlia.reply"),
    "membership.probe": ("membership.ack",),
    "membership.probe_for": ("membership.vouch",),
    "membership.join": ("membership.join_page",),
    "membership.compare": ("membership.differ",),
    "membership.differ": ("membership.amend",),
    "membership.fetch": ("membership.amend",),
    "news.ask": ("news.list",),
}
"""What Mallory says, when asked: it fits the question, and is absurd otherwise."""
BYTES = (b"", b"\0", b"\xc1", bytes(20), b"\xff" * 20, bytes(512), b"{}", b"x" * 3000)


class Absurd:
    """Makes messages. What the nodes said to Mallory is used again, so that some of it fits."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._types = {kind: inspect.type_info(kind) for kind in MESSAGES}
        self._heard: dict[type, deque[Any]] = {
            kind: deque(maxlen=200) for kind in (int, float, str, bytes)
        }

    def hear(self, message: Message) -> None:
        """Remember what is in a message."""
        found: list[Any] = [msgspec.to_builtins(message, builtin_types=(bytes,))]
        while found:
            one = found.pop()
            if isinstance(one, dict):
                found += [value for key, value in one.items() if key != "type"]
            elif isinstance(one, (list, tuple)):
                found += one[:20]
            elif type(one) in self._heard:
                self._heard[type(one)].append(one)

    def answer(self, question: Message) -> Message | None:
        """What fits a question, as far as its fields have the names of the question's."""
        tags = ANSWERS.get(CODEC.tags[type(question)])
        if tags is None or self.random.random() < 0.2:
            return None
        said = msgspec.to_builtins(question, builtin_types=(bytes,))
        said |= {"page": 0, "last": True, "outcome": "succeeded"}
        return self._message(KINDS[self.random.choice(tags)], said)

    def message(self) -> Message:
        """One that a codec lets through."""
        while True:
            kind = self.random.choice(MESSAGES)
            if CODEC.tags[kind] not in RARE or self.random.random() < 0.01:
                return self._message(kind, {})

    def said(self, kind: type[Message], likely: dict[str, Any]) -> Message:
        """One of this kind, in which these fields mostly say what is given."""
        return self._message(kind, likely)

    def _message(self, kind: type[Message], said: dict[str, Any]) -> Message:
        while True:
            made = self._struct(self._types[kind], 0)
            for name, value in said.items():
                if name in kind.__struct_fields__ and self.random.random() < 0.9:
                    made[name] = value
            data = msgspec.msgpack.encode(("x", "y", made))
            try:
                message: Message = CODEC.decode(data)[2]
                CODEC.encode("x", "y", message)  # with what was left out it is longer
            except (BadFrameError, CannotTravelError):
                continue
            return message

    def _struct(self, info: inspect.StructType, depth: int) -> Any:
        given = {}
        for field in info.fields:
            if field.required or self.random.random() < 0.7:
                likely = LIKELY.get(field.name)
                if likely is not None and self.random.random() < 0.6:
                    given[field.encode_name] = self.random.choice(likely)
                else:
                    given[field.encode_name] = self._value(field.type, depth + 1)
            elif info.array_like:
                break  # what follows would take its place
        if info.array_like:
            return ([info.tag] if info.tag is not None else []) + list(given.values())
        if info.tag is not None:
            given[info.tag_field] = info.tag
        return given

    def _value(self, info: inspect.Type, depth: int) -> Any:
        match info:
            case inspect.Metadata(type=inner):
                return self._value(inner, depth)
            case inspect.UnionType(types=types):
                return self._value(self.random.choice(types), depth)
            case inspect.StructType():
                return self._struct(info, depth)
            case inspect.LiteralType(values=values):
                return self.random.choice(values)
            case inspect.DictType(key_type=key, value_type=value):
                count = self._count(None, depth)
                return {self._value(key, depth): self._value(value, depth) for _ in range(count)}
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                return [self._value(item, depth) for _ in range(self._count(info, depth))]
            case inspect.TupleType(item_types=items):
                return [self._value(item, depth) for item in items]
            case inspect.NamedTupleType(fields=fields):
                return [self._value(field.type, depth) for field in fields]
            case inspect.BoolType():
                return self.random.random() < 0.5
            case inspect.NoneType():
                return None
        return self._scalar(info)

    def _scalar(self, info: inspect.Type) -> Any:
        match info:
            case inspect.IntType(ge=low, le=high, lt=below):
                value = self._one_of(int, INTS)
                value = value if low is None else max(value, low)
                most = below - 1 if below is not None else high
                return value if most is None else min(value, most)
            case inspect.FloatType():
                return self._one_of(float, FLOATS)
            case inspect.StrType(max_length=most):
                return self._one_of(str, TEXTS)[: most or sys.maxsize]
            case inspect.BytesType(min_length=least, max_length=most):
                return self._one_of(bytes, BYTES)[: most or sys.maxsize].ljust(least or 0, b"\0")
        raise AssertionError(info)

    def _one_of(self, kind: type, absurd: tuple[Any, ...]) -> Any:
        heard = self._heard[kind]
        if heard and self.random.random() < 0.5:
            return self.random.choice(heard)
        return self.random.choice(absurd)

    def _count(self, info: inspect.Type | None, depth: int) -> int:
        most = getattr(info, "max_length", None) or 300
        if depth <= 2 and self.random.random() < 0.05:
            return int(most)
        return min(self.random.choice((0, 0, 1, 1, 2, 5)), most)


class AbsurdPlace(ToyPlace):
    """Holds the world's side of the contract as a live one does."""

    def after(self, seconds: float, action: Any) -> Timer:
        assert seconds == seconds, "a timer for no moment at all"
        return super().after(min(max(0.0, seconds), 1e9), action)

    def record(self, event: Any) -> None:
        assert events.decode(events.encode(event)) is not None
        msgspec.json.decode(events.to_json(event), type=events.AnyEvent)
        super().record(event)


class AbsurdGround(NamedTuple):
    grid: AbsurdGrid
    id: str

    def place(self, me: str) -> AbsurdPlace:
        return self.grid.place(me)

    def join(self, agent: Agent) -> None:
        self.grid.join(agent)

    def is_node(self, text: str) -> bool:
        return "@" in text


class AbsurdGrid(ToyGrid):
    """A victim with all parts of a peer, an honest peer, and the driver of a run. Whatever is sent
    must have a form on the wire, and takes it."""

    def __init__(self, where: Path, seed: int) -> None:
        super().__init__(seed)
        self.time = 1_700_000_000.0
        self.absurd = Absurd(seed)
        self.duration = lambda job: self.random.choice((0.1, 5.0, 60.0))
        authority = new_grid(where / "authority", "lab", "v")
        self._credentials = Credentials.load(authority.home)
        self._issue = issuing(authority)
        self._caches: list[FileCache] = []
        for node in (VICTIM, HONEST):
            self._peer(where / node.partition("@")[0], node)
        self.roles: frozenset[str] = frozenset()
        self.ended: list[Any] = []
        self.fenced: list[Any] = []
        self._drive()

    def close(self) -> None:
        for cache in self._caches:
            cache.close()

    def place(self, me: str) -> AbsurdPlace:
        return AbsurdPlace(self, self.machine(node_of(me)), me)

    def deliver(self, sender: str, to: str, message: Any) -> None:
        CODEC.encode("x", "y", message)
        if node_of(to) == MALLORY:
            self.absurd.hear(message)
            answer = self.absurd.answer(message)
            if answer is not None and not self.roles.isdisjoint(answer.needs_role.split("|")):
                self.after(0.01, lambda: self._arrive(to, sender, answer))
        elif node_of(to) in self.machines:
            super().deliver(sender, to, message)

    def _arrive(self, sender: str, to: str, message: Any) -> None:
        decoded = CODEC.decode(bytes(CODEC.encode("x", "y", message))[4:])[2]
        super()._arrive(sender, to, decoded)

    # -- nodes ---------------------------------------------------------------------------------

    def _node(self, node: str, offer: Offer | None) -> GridNode:
        return GridNode(AbsurdGround(self, node), offer, Standing(self._credentials.verified))

    def _peer(self, where: Path, node: str) -> None:
        where.mkdir(exist_ok=True)
        offer = Offer(2.0, 1000, roles=("run", "submit"))
        made = self._node(node, offer)
        self._caches.append(FileCache(where, 1 << 20))
        workplace = Workplace(
            Capacity(2.0, 1000),
            CacheMarks(self._caches[-1]),
            list(known().values()),
            {"late_fee": 1.0, "cancel_share": 0.5, "reserve_share": 0.5, "discount": 0.5},
        )
        accept = accepting(self._credentials)
        certificates = Certificates("nobody", lambda: None, accept, self._issue)
        peer = GridPeer(made, KeptJournals(where / "kept"), ROLL, workplace, certificates)
        made.join([] if node == VICTIM else [VICTIM], lambda others: None)
        peer.start()

    def _drive(self) -> None:
        graph = Graph(
            "absurd",
            [
                Task(f"t{i}", Command(f"make {i}"), outputs=(f"out.{i}",), retries=1000)
                for i in range(40)
            ],
        )
        node = self._node(DRIVER, None)
        node.join([VICTIM, HONEST], lambda others: None)
        options = Options(retry_delay_s=0.1, grid="absurd", strategy="spread")
        first = Recorded().after(0)[0][1]
        signer = Chartered(RUN, graph.to_bytes(), first, peer_of(DRIVER)).begin(peer_of(DRIVER))
        charge = Charge(RUN, graph, options, Past(), 1, signer, pid=99)
        hearers = Hearers(self.ended.append, self.fenced.append)
        driver = RunDriver(node, charge, Recorded(), hearers)
        self.submitter, self.mirror = driver.writer, driver.mirror
        self.run(lambda: len(node.present()) == 2, float("inf"))
        driver.begin()

    # -- the attack ----------------------------------------------------------------------------

    def agents(self) -> list[Any]:
        return [a for m in self.machines.values() for a in m.agents.values()]

    def attack(self, messages: int, roles: frozenset[str]) -> None:
        """Say so many absurd things, with some time passing between them."""
        random = self.absurd.random
        agents = self.agents()
        self.roles = roles | {""}
        self._introduce()
        said = 0
        while said < messages:
            message = self.absurd.message()
            if message.needs_role and roles.isdisjoint(message.needs_role.split("|")):
                continue
            hearing = [agent for agent in agents if agent.hears(type(message))]
            agent = random.choice(hearing or agents)
            said += 1
            part = random.choice((agent.me.partition("/")[2], "kademlia", "peer", ""))
            self.last = (agent.me, message)
            agent.receive(at(MALLORY, part), message)
            self.pass_time(random.choice((0.0, 0.0, 0.001, 0.01, 0.05, 0.5)))
            if random.random() < 0.002:
                self.pass_time(40.0)

    def _introduce(self) -> None:
        """Mallory is a member like any other, and is spoken to."""
        offer = Offer(2.0, 1000, roles=("run", "submit"))
        record = MemberRecord(MALLORY, int(self.time * 1000), 0, "alive", offer)
        for agent in self.agents():
            if agent.hears(Join):
                agent.receive(at(MALLORY, "membership"), Join(0, record))
            elif agent.hears(Find):
                agent.receive(at(MALLORY, "kademlia"), Find(1, bytes(20)))

    def pass_time(self, seconds: float) -> None:
        until = self.time + seconds
        self.after(seconds, lambda: None)
        self.run(lambda: self.time >= until, float("inf"))


class Recorded:
    """A journal of three events, for the mirror."""

    line = ()

    def after(self, position: int) -> list[tuple[int, bytes]]:
        event = events.encode(events.TaskReady(1.0, "t0"))
        return [(number, event) for number in (1, 2, 3) if number > position]

    def last(self) -> int:
        return 3


def size_bytes(*roots: Any) -> int:
    """What these hold in memory, all together; a machine's disk is not memory."""
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(
            one, (type, ModuleType, FunctionType, Machine, ToyGrid, ToyPlace)
        ):
            continue
        seen[id(one)] = one
        todo.extend(_within(one))
    return sum(sys.getsizeof(one) for one in seen.values())


def _within(one: Any) -> Iterator[Any]:
    yield from gc.get_referents(one)
    if isinstance(one, msgspec.Struct):  # those that the collector does not follow
        for name in one.__struct_fields__:
            yield getattr(one, name)
