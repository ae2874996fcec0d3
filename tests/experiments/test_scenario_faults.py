"""Faults as a scenario orders them: when, whom, for how long, and what they leave alone."""

from __future__ import annotations

import heapq

from sureline.experiments.faults import Faults
from sureline.experiments.scenario_reader import read_scenario

HEAD = """
duration = "10min"
[[grid.site]]
name = "a"
machines = 4
[[grid.site]]
name = "b"
machines = 4
[workload]
kind = "chain"
"""


class FakeGrid:
    """Machines that only know what has been done to them."""

    def __init__(self):
        self.states = {}
        self.speeds = {}
        self.done = []
        self.groups = None
        self._queue = []
        self.time = 0.0

    def at(self, time_s, action):
        heapq.heappush(self._queue, (time_s, len(self._queue) + len(self.done) * 1000, action))

    def state(self, node):
        return self.states.get(node, "up")

    def _do(self, what, node, state):
        self.done.append((round(self.time, 6), what, node))
        self.states[node] = state

    def crash(self, node):
        self._do("crash", node, "down")

    def kill(self, node):
        self._do("kill", node, "down")

    def restart(self, node):
        self._do("restart", node, "up")

    def freeze(self, node):
        self._do("freeze", node, "frozen")

    def thaw(self, node):
        self._do("thaw", node, "up")

    def slow(self, node, factor):
        self.done.append((round(self.time, 6), "slow", node))
        self.speeds[node] = factor

    def step_clock(self, node, seconds):
        self.done.append((round(self.time, 6), f"clock {seconds:g}", node))

    def partition(self, groups):
        self.groups = groups
        self.done.append((round(self.time, 6), "partition", ""))

    def heal(self):
        self.groups = None
        self.done.append((round(self.time, 6), "heal", ""))

    def run(self):
        while self._queue:
            self.time, _, action = heapq.heappop(self._queue)
            action()


def happen(text, seed=1):
    grid = FakeGrid()
    scenario = read_scenario((HEAD + text).encode(), file="f.toml", beside=None)
    faults = Faults(scenario, seed, grid)
    faults.schedule()
    grid.run()
    return grid, faults


def script(at, what, **more):
    lines = [f'at = "{at}s"', f'what = "{what}"', *(f"{k} = {v}" for k, v in more.items())]
    return (
        "\n".join(["[[faults.script]]", *(line.replace("lasts", "for") for line in lines)]) + "\n"
    )


def test_scripted_faults_happen_when_and_to_whom_they_should():
    grid, faults = happen(
        script(5, "crash", whom='"a2"', lasts='"20s"')
        + script(10, "freeze", whom='"b"')
        + script(12, "thaw", whom='["b1", "b2"]')
    )
    assert grid.done == [
        (5.0, "crash", "a2"),
        *((10.0, "freeze", f"b{n}") for n in range(1, 5)),
        (12.0, "thaw", "b1"),
        (12.0, "thaw", "b2"),
        (25.0, "restart", "a2"),
    ]
    assert faults.counts == {"crash": 1, "freeze": 4, "thaw": 2, "restart": 1}
    assert [f.what for f in faults.happened] == [what for _, what, _ in grid.done]


def test_what_finds_no_suitable_victim_does_not_happen():
    grid, _ = happen(
        script(1, "restart", whom='"a1"')
        + script(2, "crash", whom='"a1"')
        + script(3, "crash", whom='"a1"')
        + script(4, "freeze", whom='"a1"')
    )
    assert grid.done == [(2.0, "crash", "a1")]


def test_an_end_that_was_overtaken_does_not_happen():
    grid, _ = happen(
        script(1, "crash", whom='"a1"', lasts='"100s"')
        + script(5, "restart", whom='"a1"')
        + script(50, "crash", whom='"a1"')
    )
    assert grid.state("a1") == "down"  # the first crash's end must not undo the second


def test_clocks_are_set_and_disturb_no_other_fault():
    grid, faults = happen(
        script(1, "crash", whom='"a1"', lasts='"100s"')
        + script(2, "clock", whom='["a1", "a2"]', by='"-1h"')
        + script(3, "clock", whom='"a2"', by='"90s"')
    )
    assert grid.done == [
        (1.0, "crash", "a1"),
        (2.0, "clock -3600", "a1"),
        (2.0, "clock -3600", "a2"),
        (3.0, "clock 90", "a2"),
        (101.0, "restart", "a1"),
    ]
    assert faults.counts["clock"] == 3


def test_slowness_and_stops_end_each_in_its_own_time():
    grid, _ = happen(
        script(1, "slow", whom='"a1"', factor=0.1, lasts='"10s"')
        + script(2, "freeze", whom='"a1"', lasts='"20s"')
    )
    assert grid.done == [
        (1.0, "slow", "a1"),
        (2.0, "freeze", "a1"),
        (11.0, "slow", "a1"),
        (22.0, "thaw", "a1"),
    ]
    assert grid.speeds == {"a1": 1.0}


def test_partitions_name_machines_and_heal_by_themselves():
    grid, _ = happen(script(3, "partition", groups='[["a", "submitter"], ["b1"]]', lasts='"5s"'))
    assert grid.done == [(3.0, "partition", ""), (8.0, "heal", "")]
    grid, _ = happen(script(3, "partition", groups='[["a", "submitter"], ["b1"]]'))
    assert grid.groups == [["a1", "a2", "a3", "a4", "submitter"], ["b1"]]


def test_how_many_and_how_often_at_random():
    text = '[[faults.random]]\nwhat = "crash"\nwhom = "a"\nfrom = "60s"\nuntil = "300s"\n'
    grid, _ = happen(text + 'every = "10s"\ntimes = 3\n')
    assert [at for at, _, _ in grid.done] == [70.0, 80.0, 90.0]
    assert len({node for _, _, node in grid.done}) == 3
    grid, _ = happen(text + 'every = "exponential(5s)"\nfor = "1s"\ncount = 2\n')
    crashes = [(at, node) for at, what, node in grid.done if what == "crash"]
    assert len(crashes) > 20
    assert all(60 <= at <= 300 for at, _ in crashes)
    assert {node for _, node in crashes} == {"a1", "a2", "a3", "a4"}


def test_a_share_per_minute():
    text = '[[faults.random]]\nwhat = "crash"\nper_minute = 0.5\nfor = "1s"\n'
    counts = [happen(text, seed)[1].counts["crash"] for seed in range(20)]
    assert 32 < sum(counts) / 20 < 48  # half of eight machines, for ten minutes


def test_the_seed_decides():
    text = '[[faults.random]]\nwhat = "freeze"\nevery = "exponential(20s)"\nfor = "5s"\n'
    assert happen(text, 7)[0].done == happen(text, 7)[0].done
    assert happen(text, 7)[0].done != happen(text, 8)[0].done
