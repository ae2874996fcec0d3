"""How soon a lost member is noticed, who is not accused, and what that costs."""

from __future__ import annotations

import pytest
from membership_grid import Grid

from sureline.overlay.membership import MembershipSettings
from sureline.world.protocol import Unreachable
from sureline.world.simulated import LAN, Constant, Link, Uniform

DETECT_S = MembershipSettings().detect_s
SPREAD_S = 4.0
"""What it takes at most until all of a thousand know what one has noticed."""


def lose(grid: Grid, how: str, victim: str) -> None:
    if how == "crash":
        grid.crash(victim)
    elif how == "freeze":
        grid.sim.freeze(victim)
    else:
        grid.cut_off([victim])


def times_to_notice(how: str, count: int, seed: int) -> tuple[float, float]:
    """Until the first, and until all others, hold one lost member for dead."""
    grid = Grid(seed, watched=False)
    nodes = grid.add_acquainted(count)
    grid.run_for(4 + grid.sim.random.random() * 2)
    victim = nodes[seed % count]
    others = [node for node in nodes if node != victim]
    lose(grid, how, victim)
    began = grid.sim.time

    def noticed(least: int) -> bool:
        return list(grid.states_of(victim, others).values()).count("dead") >= least

    detect_s = DETECT_S * MembershipSettings().patience(count)
    grid.run_until(lambda: noticed(1), detect_s, step_s=0.05)
    first_s = grid.sim.time - began
    grid.run_until(lambda: noticed(len(others)), SPREAD_S, step_s=0.05)
    return first_s, grid.sim.time - began


@pytest.mark.parametrize("how", ["crash", "freeze", "cut off"])
@pytest.mark.parametrize(("count", "seeds"), [(2, 6), (3, 6), (10, 10), (100, 2)])
def test_a_lost_member_is_noticed_in_time_by_all(how, count, seeds):
    for seed in range(seeds):
        first_s, _ = times_to_notice(how, count, seed)
        if how == "crash":
            # Nobody listens there: the next probe finds out, and there is no need to wait.
            assert first_s <= 2 * MembershipSettings().probe_s + 0.3


@pytest.mark.soak
@pytest.mark.parametrize("how", ["crash", "freeze", "cut off"])
@pytest.mark.parametrize(("count", "seeds"), [(10, 300), (100, 100), (1000, 20)])
def test_distribution_of_times_to_notice(how, count, seeds):
    times = [times_to_notice(how, count, seed) for seed in range(seeds)]
    for what, values in zip(("first", "all"), zip(*times, strict=True), strict=True):
        ranked = sorted(values)
        print(
            f"{how:8} n={count:5} {what:5} median {ranked[len(ranked) // 2]:.2f} s"
            f"  95 % {ranked[int(0.95 * len(ranked))]:.2f} s  most {ranked[-1]:.2f} s"
        )


def test_everybody_is_probed_within_two_periods():
    grid = Grid(2, watched=False, detail="full")
    nodes = grid.add_acquainted(100)
    grid.run_for(3)

    def received() -> dict[str, int]:
        counted = grid.sim.counters.by_node_and_type()
        return {node: counted[node]["membership.probe"].received for node in nodes}

    for _ in range(5):
        before = received()
        grid.run_for(2 * grid.settings.probe_s + 0.05)
        after = received()
        assert [node for node in nodes if after[node] == before[node]] == []


def test_half_of_the_grid_lost_at_once_is_noticed():
    grid = Grid(3, watched=False)
    nodes = grid.add_acquainted(60)
    grid.run_for(5)
    lost = grid.sim.random.sample(nodes, 30)
    for node in lost:
        grid.sim.freeze(node)
    rest = [node for node in nodes if node not in lost]
    grid.run_until(lambda: grid.agree_on(rest), 3 * DETECT_S, step_s=0.5)


def test_a_row_of_lost_neighbours_does_not_hide_the_last_of_them():
    for seed in range(6):
        grid = Grid(seed, watched=False)
        nodes = grid.add_acquainted(40)
        grid.run_for(3 + seed / 6)
        row = [name for _, name in grid.agents["n0"].knowledge.table.ring[10:15]]
        for node in row:
            grid.sim.freeze(node)
        rest = [node for node in nodes if node not in row]
        ack_s = grid.settings.ack_s
        for number, node in enumerate(row):
            # Each takes no longer than its own time, and one silence more than the one before.
            until_s = 3 + seed / 6 + DETECT_S + number * (ack_s + 0.05)
            grid.run_until(
                lambda grid=grid, rest=rest, node=node: (
                    "dead" in grid.states_of(node, rest).values()
                ),
                until_s - grid.sim.time,
                step_s=0.05,
            )


@pytest.mark.parametrize("detect_s", [3.5, 20.0])
def test_the_time_to_notice_can_be_set(detect_s):
    for seed in range(5):
        grid = Grid(seed, settings=MembershipSettings(detect_s=detect_s), watched=False)
        nodes = grid.add_acquainted(10)
        grid.run_for(5 + seed / 10)
        grid.sim.freeze(nodes[0])
        took_s = grid.run_until(
            lambda grid=grid: "dead" in grid.states_of("n0").values(), detect_s, step_s=0.05
        )
        assert took_s > grid.settings.suspicion_s


def test_messages_per_node_do_not_depend_on_the_number_of_nodes():
    rates = {}
    for count in (5, 20, 200):
        grid = Grid(1, watched=False)
        nodes = grid.add_acquainted(count)
        grid.run_for(60)
        before = {node: grid.sim.places[f"{node}/membership"].sent for node in nodes}
        grid.run_for(80)
        sent = [grid.sim.places[f"{node}/membership"].sent - before[node] for node in nodes]
        rates[count] = sum(sent) / count / 80
        assert grid.sim.counters.by_type()["membership.probe"].sent <= 1.05 * count * 141
    # A probe of the next on the ring and its answer in two seconds, of a partner in eight, and one
    # comparison of tables in forty.
    assert all(1.2 <= rate <= 1.4 for rate in rates.values()), rates


def test_while_there_is_news_partners_are_probed_too():
    grid = Grid(1, watched=False)
    nodes = grid.add_acquainted(20)
    grid.run_for(60)
    before = grid.sim.counters.by_type()["membership.probe"].sent
    for number in range(20):
        grid.agents[nodes[0]].report(float(number % 2), number)
        grid.run_for(1)
    sent = grid.sim.counters.by_type()["membership.probe"].sent - before
    assert sent > 0.9 * 20 * len(nodes)


def test_loss_of_messages_kills_nobody():
    grid = Grid(5, link=Link(delay=LAN.delay, loss=0.05))
    nodes = grid.add_acquainted(30)
    grid.run_for(300)
    assert grid.deaths_seen() == []
    grid.run_until(lambda: grid.agree_on(nodes), 60)
    assert sum(grid.sim.places[f"{node}/membership"].sent for node in nodes) < 5 * 30 * 360


@pytest.mark.soak
def test_loss_of_messages_kills_nobody_for_hours():
    for loss, hours in ((0.05, 2), (0.10, 1)):
        grid = Grid(6, link=Link(delay=LAN.delay, loss=loss))
        grid.add_acquainted(50)
        grid.run_for(hours * 3600)
        print(f"loss {loss:.0%}, 50 nodes, {hours} h: {len(grid.deaths_seen())} deaths")
        assert grid.deaths_seen() == []


def test_one_broken_connection_kills_nobody():
    grid = Grid(7)
    nodes = grid.add_acquainted(10)
    grid.run_for(3)
    for node in nodes[1:]:
        for _ in range(3):
            grid.agents[node].receive("world", Unreachable("n0"))
    grid.sim.network.set_link("n0", "n1", Link(loss=1.0))
    grid.run_for(30)
    assert [m.name for _, _, m in grid.seen if m.state != "alive"] == []


def test_a_node_that_stood_still_accuses_nobody():
    for seed in range(10):
        grid = Grid(seed)
        nodes = grid.add_acquainted(10)
        grid.run_for(3 + grid.sim.random.random())
        grid.sim.freeze("n0")
        grid.run_for(0.5 + seed)
        grid.sim.thaw("n0")
        grid.run_for(10)
        accused = {m.name for _, _, m in grid.seen if m.state != "alive"}
        assert accused <= {"n0"}, f"seed {seed}"
        grid.run_until(lambda grid=grid, nodes=nodes: grid.agree_on(nodes), 20)


def test_where_all_answers_are_slow_nobody_goes_on_asking_others_for_help():
    """Each help costs the slow one a connection, and makes it slower."""
    grid = Grid(8, link=Link(delay=Constant(0.3)))
    nodes = grid.add_acquainted(20)
    grid.run_for(30)
    helped = []
    for node in nodes:
        grid.agents[node].inquiries.run_errand = lambda asker, request: helped.append(asker)
    grid.run_for(60)
    assert helped == []
    assert all(member.state == "alive" for _, _, member in grid.seen)


def test_a_timer_that_comes_late_is_no_evidence():
    """In any world: whether the answer or the late timer is served first is a matter of luck."""
    grid = Grid(1)
    grid.add_acquainted(5)
    inquiries = grid.agents["n0"].inquiries
    for late_s, stage in ((2.0, "direct"), (0.2, "direct"), (0.05, "helped")):
        grid.agents["n0"].inquiries.begin("n1")
        inquiry = inquiries._open["n1"]
        inquiries._silence(inquiry, grid.agents["n0"].world.elapsed() - late_s)
        assert inquiry.stage == stage
    assert inquiries.health.patience == 3
    assert grid.seen == []


def test_a_slow_node_accuses_nobody():
    grid = Grid(2)
    nodes = grid.add_acquainted(20)
    grid.run_for(3)
    grid.sim.slow("n3", 20_000)  # a second for every message
    grid.run_for(60)
    assert {name for _, _, name in grid.deaths_seen()} <= {"n3"}
    grid.sim.slow("n3", 1)
    grid.run_until(lambda: grid.agree_on(nodes), 180, step_s=1)


def test_a_slow_link_is_no_reason_to_accuse():
    grid = Grid(4)
    nodes = grid.add_acquainted(10)
    for other in nodes[1:]:
        grid.sim.network.set_link("n0", other, Link(delay=Constant(0.4)))
    grid.run_for(60)
    assert grid.deaths_seen() == []


def test_when_everything_is_slow_nobody_dies_and_nobody_asks_more():
    """Answers take longer than they may, everywhere: asking more would make it worse."""
    grid = Grid(8)
    nodes = grid.add_acquainted(40)
    grid.run_for(3)
    grid.sim.network.set_default(Link(delay=Uniform(0.3, 0.9)))
    grid.run_for(10)
    sent = sum(grid.sim.places[f"{node}/membership"].sent for node in nodes)
    grid.run_for(60)
    sent = sum(grid.sim.places[f"{node}/membership"].sent for node in nodes) - sent
    assert grid.deaths_seen() == []
    assert sent < 6 * 60 * len(nodes)
    grid.sim.network.set_default(LAN)
    grid.run_until(lambda: grid.agree_on(nodes), 30)


def test_nobody_is_declared_dead_on_hearsay_alone():
    """Whoever hears of a suspicion, and never of its refutation, asks for itself."""
    grid = Grid(9)
    grid.add_acquainted(8)
    grid.run_for(2)
    record = grid.agents["n1"].knowledge.table.records["n2"]
    suspicion = record.but(state="suspect", offer=None)
    grid.agents["n2"].knowledge.own = record.but(incarnation=5, offer=record.offer)
    grid.agents["n1"].knowledge.hear([suspicion], fresh=True)
    assert grid.state_at("n1", "n2") == "suspect"
    grid.run_for(30)
    assert grid.deaths_seen() == []
    assert grid.state_at("n1", "n2") == "alive"
