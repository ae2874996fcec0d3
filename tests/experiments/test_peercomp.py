"""Simulated peers that reserve time: sweeps against messages, promises kept, the command."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sureline.cli.main import run_command
from sureline.experiments.peercomp_grid import DEPTH, EPOCH_S, Grid, delays
from sureline.experiments.peercomp_lane import Lane, SimulatedQueues
from sureline.experiments.peercomp_load import POWERS
from sureline.experiments.peercomp_policies import policy_compared
from sureline.experiments.peercomp_rivals import RivalGrid
from sureline.experiments.peercomp_sweeps import Sweeps, SweepSettings
from sureline.experiments.peercomp_warm import Warm, alike, drawn, settled, state_of
from sureline.overlay.tree.leaf import ANYWHERE, HoleSought
from sureline.overlay.tree.messages import Nowhere
from sureline.overlay.tree.points import FIRST
from sureline.overlay.tree.shelf import OwnShelf
from sureline.overlay.tree.summary import Amounts, Summary, renewed
from sureline.strategies.peercomp.queues import LEASE


def messages_and_sweeps_agree(peers: int) -> None:
    """Message by message, under load; then nothing changes until all updates are through."""
    grid = Grid(peers, 5, swept=False)
    grid.begin(0.8, 60.0)
    grid.run(100.0)
    for agent in grid.agents:
        agent.leaf.watched = True  # type: ignore[union-attr]  # lanes stand still from here on
    grid.run(40.0)
    slots = set()
    sweeps = Sweeps(grid.shape, grid.queues, Amounts(30, 30, 30), SweepSettings())
    sweeps._queues.advance_all = lambda now_s: None  # type: ignore[method-assign]  # still
    sweeps.sweep(grid.now_s, whole=True)
    cells = 0
    for row, agent in enumerate(grid.agents):
        if agent.kids is not None:
            assert isinstance(agent.shelf, OwnShelf)
            heard = renewed(agent.shelf.below(row), sweeps.slot)
            swept = sweeps.below(row)
            slots.add(heard.slot)
            cells += len(swept.keys)
            # Where a hole begins "now" moves on between two updates, and a short one is gone soon;
            # how many end before each of the later reference points stays.
            assert ends_of(heard) == ends_of(swept), f"the branch of {agent.me}"
    assert cells > peers and slots == {sweeps.slot}


def ends_of(summary: Summary) -> dict[int, int]:
    """How many holes end where, but for those that end before the first reference point."""
    found: dict[int, int] = {}
    for key, count in zip(summary.keys.tolist(), summary.counts.tolist(), strict=True):
        end = (key >> 15) & 31
        if end > FIRST:
            found[end] = found.get(end, 0) + count
    return found


@pytest.mark.soak
def test_sweeps_say_what_messages_say() -> None:
    messages_and_sweeps_agree(60)


@pytest.mark.soak
def test_sweeps_say_what_messages_say_at_1000() -> None:
    messages_and_sweeps_agree(1000)


@pytest.mark.parametrize("swept", [True, False])
def test_what_is_promised_is_kept_and_what_is_refused_is_given_back(swept: bool) -> None:
    grid = Grid(100, 3, swept=swept)
    grid.begin(1.2, 300.0)
    grid.run(400.0)
    assert grid.under_way == 0 and len(grid.finished) == grid.submitted > 5
    accepted = [f for f in grid.finished if not f.booked.reason]
    assert accepted and all(f.booked.end_s <= f.deadline_s + 1e-3 for f in accepted)
    q = grid.queues
    grid.queues.advance_all(grid.now_s)
    for row in range(len(q)):
        assert np.isinf(q.queue[row, : q.sizes[row], LEASE]).all(), "no lease outlives its time"
    q.advance_all(grid.now_s + 12 * 3600.0)
    assert q.sizes.sum() == 0 and q.busy[:, 3].sum() == 0
    tasks = {("fork-join", n): n + 2 for n in (8, 16, 32, 64)}
    tasks |= {("laplace", n): n * n for n in (3, 4, 5, 6, 8)}
    assert q.busy[:, 2].sum() == sum(tasks[f.model, f.size] for f in accepted)


def test_a_request_goes_no_higher_than_it_may() -> None:
    """A search in vain, from a leaf far below the root."""
    grid = Grid(64, 3)
    grid.begin(0.0, 10.0)
    rows = [row for row in range(64) if grid.shape.depth[grid.shape.leaf_parent[row]] > 4]
    tree, told = grid.agents[rows[0]], []
    tree.client = SimpleNamespace(told=lambda sender, message: told.append(message))
    due = grid.now_s + 9000
    ask = HoleSought(1, 0, (1e12,), (due,), 1, grid.now_s, due)
    for number, reach in enumerate((0, 3, ANYWHERE)):
        tree.request(ask._replace(number=number, reach=reach))
        grid.run(10.0)
    to_the_root = int(grid.shape.depth[grid.shape.leaf_parent[rows[0]]])
    assert [type(message) for message in told] == [Nowhere] * 3
    assert [message.hops for message in told] == [0, 3, to_the_root]


def test_the_oracle_cuts_what_no_machine_has_time_for() -> None:
    """One lane is free for 1,000 s from now, the other from 1,500 s on."""
    queues = SimulatedQueues(np.ones(2), 8)
    now = EPOCH_S
    for row, (start, due) in enumerate(((1000, 3000), (0, 1500))):
        lane, length = Lane(queues, row), float(due - start)
        ask = HoleSought(9 + row, 0, (length,), (now + due,), 1, now + start, now + due)
        assert lane.reserve(ask, now) and lane.commit(9 + row, 0, (now + start,), now)
    grid = RivalGrid(2, 1, Warm(queues, now), "oracle")
    whole = HoleSought(1, 0, (800.0, 800.0), (now + 3000,) * 2, 2, now, now + 3000)
    assert grid._smallest(whole) == -1
    (first, row), (rest, other) = grid._known(whole)
    assert (first.works, rest.works, rest.first) == ((800.0,), (800.0,), 1)
    assert (row, other) == (0, 1) and first.deadline_s == rest.startline_s == now + 1200
    assert grid._known(whole._replace(number=2, works=(1200.0, 800.0))) == []
    # The second lane's work has begun, and waits no more.
    assert queues.sizes.tolist() == [2, 0], "what was tried in vain is given back"


def test_a_warm_start_is_like_a_simulated_one() -> None:
    """Like its donors; `reproduce` compares it with grids of other seeds, too."""
    one, other = (settled(1.0, seed, 200, 1200.0) for seed in (1, 2))
    warm = drawn(state_of(one), 1000, 9)
    assert len(warm.queues) == 1000
    assert max(a.gap for a in alike(warm, state_of(one), state_of(other))) < 0.12
    empty = Grid(200, 4)
    nothing = alike(state_of(empty), state_of(one), state_of(other))
    assert not any(a.agrees for a in nothing if a.what == "queued tasks")


def test_delays_have_the_mean_of_the_paper() -> None:
    values = np.array(delays().values_s)
    assert values.mean() == pytest.approx(0.05, rel=1e-3)
    assert values.min() >= 0.02 and values.max() <= 0.3


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    line = ["reproduce", "peercomp", "--nodes", "60", "--minutes", "1", "--seed", "2", "--json"]
    assert run_command([*line, "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {
        "table1", "table2", "allocation", "traffic", "rejected", "missed", "nodes", "wall_s",
        "peak_bytes",
    } <= set(found)  # fmt: skip
    assert all(row["agrees"] for row in found["table1"]) and found["missed"] == 0
    assert len(found["table2"]) == 8 and found["nodes"] == 60
    stays, *leave = found["churn"]
    assert stays["machines_left"] == stays["tasks_lost"] == 0 and stays["accepted"] > 0
    assert leave[-1]["machines_left"] > 0 and leave[-1]["tasks_lost"] > 0
    drawn = page.read_text()
    assert drawn.count("<svg") == 3 and drawn.count("<table") == 4
    assert drawn.count("<td>the same</td>") == 3, "Table I"
    assert all(f"<td>{one['what']}</td>" in drawn for one in found["traffic"]["numbers"])


@pytest.mark.parametrize(
    "line",
    [
        ["reproduce", "peercomp", "--nodes", "3"],
        ["reproduce", "peercomp", "--nodes", "0"],
        ["reproduce", "peercomp", "--html", "nowhere/page.html"],
        ["reproduce", "peercomp", "--minutes", "0"],
        ["reproduce", "surety", "--nodes", "10"],
    ],
)
def test_what_cannot_be_is_said(line: list[str]) -> None:
    assert run_command(line) == 2


def test_policies_favour_whom_they_should() -> None:
    """Where more is asked for than there is; against favouring nobody, on the same workflows."""
    made = {}
    for policy in ("deadline", "priority", "fair"):
        powers = np.random.RandomState(1).choice(POWERS, 200)
        warm = Warm(SimulatedQueues(powers, DEPTH), EPOCH_S)
        made[policy] = policy_compared(warm, policy, (), 2.0, 1, 40.0)
        assert made[policy].workflows > 200 and made[policy].missed == 0
    nobody, priority, fair = made.values()
    assert priority.by_rank["low"] < nobody.by_rank["low"] - 0.1
    assert priority.by_rank["high"] > max(nobody.by_rank["high"], priority.by_rank["low"] + 0.1)
    assert fair.greedy < nobody.greedy - 0.1 and fair.others > nobody.others
