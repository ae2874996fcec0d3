"""Live worlds on one asyncio loop, whose time passes only while nobody has anything to do: the live
world's code with the trouble of a simulation, from seeds. Messages travel as frames, over wires
that lose, double and delay them; nodes crash, stop for a while and are cut off."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from sureline.world.address import at, node_of, part_of
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec, Frames
from sureline.world.simulated import Link


class _Leap(selectors.SelectSelector):
    """Waits for nothing: what would be waited for is added to the time."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt_s = 0.0

    def select(self, timeout=None):
        self.leapt_s += timeout or 0.0
        return super().select(0)


class LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        return self._leap.leapt_s


class _Wire:
    """A node's transport."""

    def __init__(self, stage: LiveStage, node: str) -> None:
        self._stage, self.node = stage, node

    def attach(self, on_message, on_unreachable) -> None:
        self.on_message, self.on_unreachable = on_message, on_unreachable

    def send(self, to, sender, message) -> None:
        frame = bytes(self._stage.codec.encode(part_of(sender), part_of(to), message))
        self._stage.carry(self.node, node_of(to), frame)

    def hold(self) -> None: ...
    def release(self) -> None: ...

    def arrive(self, sender: str, frame: bytes) -> None:
        for body in Frames().feed(frame):
            sender_part, to_part, message = self._stage.codec.decode(body)
            self.on_message(at(sender, sender_part), at(self.node, to_part), message)


class LiveStage:
    """As much of `Simulation` as a net of agents wants."""

    def __init__(self, seed: int, link: Link, messages: Sequence[type]) -> None:
        self.loop = LeapingLoop()
        self.codec = Codec(messages)
        self.random = Random(f"live {seed}")
        self.network = self
        self.set_default(link)
        self.crashes: list[BaseException] = []
        self._wires: dict[str, _Wire] = {}
        self._worlds: dict[str, LiveWorld] = {}
        self._boots: dict[str, Callable[[], None]] = {}
        self._apart: list[set[str]] = []
        self._frozen: dict[str, list[tuple[str, str, bytes]]] = {}

    def set_default(self, link: Link) -> None:
        source = np.random.RandomState(self.random.getrandbits(32))
        self._link, self._delay = link, link.delay.draw_from(source)

    @property
    def time(self) -> float:
        return self.loop.time()

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        self.loop.call_at(time_s, action)

    def run(self, *, until: float) -> None:
        self.loop.call_at(until, self.loop.stop)
        self.loop.run_forever()
        assert not self.crashes, self.crashes

    def close(self) -> None:
        self.loop.close()

    # Nodes.

    def boot(self, node: str, action: Callable[[], None]) -> None:
        self._boots[node] = action
        wire = self._wires[node] = _Wire(self, node)
        seed = self.random.getrandbits(64)
        self._worlds[node] = LiveWorld(
            self.loop, None, None, None,
            on_crash=self.crashes.append, random=Random(seed), transport=wire, node=node,
        )  # fmt: skip
        self._worlds[node].guard(action)

    def place(self, me):
        return self._worlds[node_of(me)].place(me)

    def join(self, agent) -> None:
        self._worlds[node_of(agent.me)].join(agent)

    def crash(self, node: str) -> None:
        """Its timers and what it was sent are gone with it; others' connections to it close."""
        world = self._worlds.pop(node, None)
        if world is not None:
            world._on_crash = lambda error: None
            world.crash(RuntimeError("killed"))
            del self._wires[node]
            self._frozen.pop(node, None)
            for other, wire in sorted(self._wires.items()):
                if self._are_joined(node, other):
                    self.loop.call_soon(wire.on_unreachable, node)

    def restart(self, node: str) -> None:
        self.boot(node, self._boots[node])

    def freeze(self, node: str) -> None:
        self._frozen[node] = []

    def thaw(self, node: str) -> None:
        for one in self._frozen.pop(node, ()):
            self.carry(*one)

    def partition(self, groups: Sequence[Sequence[str]]) -> None:
        self._apart = [set(group) for group in groups]

    def heal(self) -> None:
        self._apart = []

    def step_clock(self, node: str, seconds: float) -> None:
        """The clock of a live machine is nobody's to set here."""

    # Messages.

    def _are_joined(self, one: str, other: str) -> bool:
        return all((one in group) == (other in group) for group in self._apart)

    def carry(self, sender: str, to: str, frame: bytes) -> None:
        for stopped in (sender, to):
            if stopped in self._frozen:
                self._frozen[stopped].append((sender, to, frame))
                return
        if self._are_joined(sender, to) and self.random.random() >= self._link.loss:
            for _ in range(1 + (self.random.random() < self._link.duplication)):
                self.loop.call_later(self._delay(), self._arrive, sender, to, frame)

    def _arrive(self, sender: str, to: str, frame: bytes) -> None:
        if to in self._wires and self._are_joined(sender, to):
            self._wires[to].arrive(sender, frame)
