"""A simulated ring of chemical engines with machines, and somebody who plays the run's writer."""

from __future__ import annotations

from ring_net import Net

from sureline.overlay.ring import RingSettings
from sureline.peer.capacity import Capacity
from sureline.strategies.chemical import RING
from sureline.strategies.chemical.holder import PART, MoleculeHolder
from sureline.strategies.chemical.messages import (
    Answered,
    Deploy,
    Done,
    Enter,
    Entered,
    Envelope,
    Tending,
)
from sureline.strategies.chemical.molecules import FEATURES, level_key, task_key
from sureline.strategies.chemical.owner import PART as RESOURCE
from sureline.strategies.chemical.owner import Owner
from sureline.world.address import at, node_of
from sureline.world.agent import Agent, handles

SETTINGS = RingSettings(lease_s=6.0, republish_s=4.0, meta_ttl_s=10.0)
WRITER = "desk"


class Bench:
    """As much of a machine as an owner looks at."""

    def __init__(self, me, cores):
        self.me, self.capacity, self.leaving = me, Capacity(cores, 8_000_000_000), False


class Writer(Agent):
    """Binds whatever it is advised, once, and has every task done a while later."""

    def __init__(self, me, world):
        super().__init__(me, world)
        self.takes_s = 1.0
        self.bound: dict[str, str] = {}
        self.order: list[str] = []
        self.advice = 0
        self.done: set[str] = set()
        self.tenders: dict[int, str] = {}
        self.levels: dict[int, list[str]] = {}
        self.kept: set[int] = set()
        self.said: list[str] = []

    @handles(Entered)
    def on_entered(self, sender, said):
        if said.kept:
            self.kept.add(said.number)

    @handles(Deploy)
    def on_deploy(self, sender, said):
        self.advice += 1
        new = said.task not in self.bound
        if new:
            self.bound[said.task] = said.peer
            self.order.append(said.task)
            self.said.append(said.said)
            self.world.after(self.takes_s, lambda: self._finish(said.task))
        self.world.send(sender, Answered(said.run, said.number, new, not new))

    def _finish(self, task):
        self.done.add(task)
        for level, tasks in self.levels.items():
            if task in tasks and level in self.tenders:
                self.world.send(self.tenders[level], Done("run", level, (task,)))

    @handles(Tending)
    def on_tending(self, sender, said):
        self.tenders[said.level] = sender
        done = tuple(sorted(self.done & set(self.levels[said.level])))
        self.world.send(sender, Done("run", said.level, done))


class ChemicalNet(Net):
    """`n0`, `n1`, ...: each with a ring, an engine and a machine of `cores`."""

    def __init__(self, seed, nodes, cores=1.0):
        super().__init__(seed, settings=SETTINGS)
        self.cores = cores
        self.holders: dict[str, MoleculeHolder] = {}
        self.owners: dict[str, Owner] = {}
        self.sim.boot(WRITER, self._boot_writer)
        self.grow(nodes)
        self.pass_time(3.0)

    def _boot_writer(self):
        me = at(WRITER, "run")
        self.writer = Writer(me, self.sim.place(me))
        self.sim.join(self.writer)

    def _boot(self, node):
        from sureline.overlay.ring import Ring

        place = self.sim.place
        ring = Ring(at(node, RING), place(at(node, RING)), FEATURES, self.settings)
        holder = MoleculeHolder(at(node, PART), place(at(node, PART)), ring, lambda: None)
        owner = Owner(
            at(node, RESOURCE), place(at(node, RESOURCE)), Bench(at(node, "peer"), self.cores)
        )
        for agent in (ring, holder, owner):
            self.sim.join(agent)
        others = [at(other, RING) for other in self.live]
        self.live[node], self.holders[node], self.owners[node] = ring, holder, owner
        ring.join(self.random.sample(others, min(3, len(others))), lambda k: self.joined.add(node))
        owner.start()

    def is_held(self, key):
        """The node that works on a molecule, or tends it."""
        return next(
            (n for n in sorted(self.live) if key in self.holders[n]._working
             or key in self.holders[n]._levels), None
        )  # fmt: skip

    # -- what enters ---------------------------------------------------------------------------

    def envelope(self, text, keys, but=(), rules=""):
        return Envelope("run", 1, at(WRITER, "run"), rules, text, keys, but).packed()

    def enter(self, number, key, value):
        gate = at(self.random.choice(sorted(self.live)), PART)
        self.writer.world.send(gate, Enter("run", number, key, value))

    def enter_task(self, name, cores=1.0, key=0.0, but=(), rules=""):
        value = self.envelope(_task(name, cores), {name: key}, but, rules)
        self.enter(hash_of(name), task_key("run", 1, name, 1), value)

    def enter_levels(self, levels):
        """`levels[0]` is the first to run."""
        for back, names in enumerate(levels):
            number = len(levels) - 1 - back
            self.writer.levels[number] = names
            tasks = ", ".join(_task(name, 1.0) for name in names)
            text = f"LEVEL:{number}:<{tasks}>" if back else f"LEVEL:{number}:READY:<{tasks}>"
            self.enter(number, level_key("run", 1, number), self.envelope(text, {}))
        assert self.until(lambda: len(self.writer.kept) == len(levels))

    def crash_holder_of(self, key):
        node = self.is_held(key)
        assert node is not None
        self.crash(node)
        return node

    def _gone(self, node):
        super()._gone(node)
        self.holders.pop(node, None)
        self.owners.pop(node, None)


def hash_of(name):
    return int.from_bytes(name.encode()[:5].ljust(5))


def _task(name, cores):
    wants = f"<CORES:{cores}, MEMORY:0, DISK:0, GPUS:0>"
    return f'TASK:"{name}":<"work":{wants}>:<>'


__all__ = ["WRITER", "ChemicalNet", "Writer", "node_of"]
