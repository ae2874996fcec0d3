"""Joining, leaving, starting again, flapping, being cut in two, watching: all in the simulator."""

from __future__ import annotations

import pytest
from membership_grid import Grid, present

from sureline.overlay.membership import MembershipSettings
from sureline.world.protocol import Unreachable
from sureline.world.simulated import LAN, Link, MachineSpec


def grown(grid: Grid, count: int) -> list[str]:
    """Nodes that join one after the other through the first two."""
    nodes = [f"n{number}" for number in range(count)]
    for number, node in enumerate(nodes):
        grid.add(node, nodes[: min(2, number)])
        grid.run_for(0.05)
    return nodes


def test_everybody_hears_of_everybody():
    grid = Grid(1)
    nodes = grown(grid, 40)
    grid.run_until(lambda: grid.agree_on(nodes), 5)
    member = grid.agents["n3"].members()["n7"]
    assert (member.node, member.state, member.name) == ("n7", "alive", "n7")
    assert (member.offer.cores, member.offer.site, member.offer.roles) == (
        4.0,
        "lab",
        ("run", "submit"),
    )
    assert grid.joined["n39"] >= 38


def test_many_join_at_once_in_pages():
    grid = Grid(2, watched=False)
    nodes = grid.add_acquainted(150)
    late = [f"late{number}" for number in range(20)]
    for node in late:
        grid.add(node, ["n0"])
    grid.run_until(lambda: len([node for node in late if node in grid.joined]) == 20, 2)
    assert min(grid.joined.values()) >= 150, "joined before all pages were there"
    grid.run_until(lambda: grid.agree_on([*nodes, *late]), 10, step_s=0.5)


def test_a_joining_node_tries_its_contacts_until_one_answers():
    grid = Grid(3)
    grid.add("n0")
    grid.add("late", ["nobody", "frozen", "n1"])
    grid.add("frozen", ["n0"])
    grid.sim.freeze("frozen")
    grid.run_for(20)
    assert "late" not in grid.joined
    grid.add("n1", ["n0"])
    grid.run_until(lambda: "late" in grid.joined, 15)
    grid.run_until(lambda: present(grid.agents["n0"]).keys() >= {"late", "n0", "n1"}, 5)


def test_joining_succeeds_although_messages_are_lost():
    grid = Grid(4, link=Link(delay=LAN.delay, loss=0.2))
    nodes = grown(grid, 10)
    grid.run_until(lambda: len(grid.joined) == 10, 60)
    grid.run_until(lambda: grid.agree_on(nodes), 60)


def test_leaving_is_believed_at_once():
    for seed in range(5):
        grid = Grid(seed)
        nodes = grid.add_acquainted(50)
        grid.run_for(3)
        left = []
        grid.agents["n9"].leave(lambda left=left: left.append(True))
        rest = [node for node in nodes if node != "n9"]
        grid.run_until(lambda grid=grid, rest=rest: grid.agree_on(rest), 5)
        assert left == [True]
        assert grid.deaths_seen() == []
        assert set(grid.states_of("n9", rest).values()) == {"left"}
        sent = grid.sim.places["n9/membership"].sent
        grid.run_for(10)
        assert grid.sim.places["n9/membership"].sent == sent


def test_leaving_alone_or_before_having_joined_is_done_at_once():
    grid = Grid(1)
    done = []
    grid.add("n0").leave(lambda: done.append("alone"))
    grid.add("n1", ["nobody"]).leave(lambda: done.append("before"))
    grid.run_for(3)
    assert sorted(done) == ["alone", "before"]


def test_a_restarted_node_supersedes_its_former_life():
    grid = Grid(6)
    nodes = grid.add_acquainted(10)
    grid.run_for(3)
    before = grid.agents["n0"].knowledge.own.life
    grid.crash("n4")
    grid.run_for(0.01)
    grid.restart("n4")
    grid.run_until(lambda: grid.agree_on(nodes), 10)
    assert grid.agents["n1"].members()["n4"].life > before


@pytest.mark.parametrize("clock_offset_s", [0.0, -1000.0])
def test_a_node_that_starts_elsewhere_supersedes_its_former_self(clock_offset_s):
    """Also if its clock is behind; and the former self, which only stood still, gives in."""
    grid = Grid(7)
    for number in range(6):
        grid.add(f"n{number}@here:1", ["n0@here:1"] if number else [])
    grid.run_for(3)
    silenced = []
    grid.agents["n3@here:1"].on_superseded = lambda: silenced.append(True)
    grid.sim.freeze("n3@here:1")
    grid.run_for(1)
    grid.add("n3@there:1", ["n0@here:1"], spec=MachineSpec(clock_offset_s=clock_offset_s))
    grid.up.pop("n3@here:1")
    wanted = list(grid.up)
    grid.run_until(lambda: grid.agree_on(wanted), 10)
    grid.sim.thaw("n3@here:1")
    grid.run_until(lambda: silenced == [True], 10)
    sent = grid.sim.places["n3@here:1/membership"].sent
    grid.run_for(10)
    assert grid.sim.places["n3@here:1/membership"].sent == sent
    assert grid.agree_on(wanted)


def test_a_flapping_node_is_shown_as_dead_until_it_stays():
    grid = Grid(8)
    nodes = grid.add_acquainted(10)
    grid.run_for(3)
    for _ in range(12):
        grid.sim.freeze("n5")
        grid.run_for(7)
        grid.sim.thaw("n5")
        grid.run_for(5)
    changes = [m.state for _, node, m in grid.seen if node == "n0" and m.name == "n5"]
    # It died twelve times. Twice for free; then it was shown again after 5 s, once or twice, ...
    assert changes.count("dead") <= 5, changes
    assert changes.count("alive") <= 5, changes
    grid.run_for(3)
    assert grid.state_at("n0", "n5") == "alive"
    assert grid.agents["n0"].members()["n5"].state == "dead"
    grid.run_until(lambda: grid.agree_on(nodes), 130, step_s=1)


def test_a_node_that_starts_again_and_again_is_shown_as_dead_until_it_stays():
    grid = Grid(9)
    nodes = grid.add_acquainted(10)
    grid.run_for(3)
    for _ in range(12):
        grid.crash("n5")
        grid.run_for(0.05)
        grid.restart("n5")
        grid.run_for(3)
    changes = [m.state for _, node, m in grid.seen if node == "n0" and m.name == "n5"]
    assert changes.count("alive") <= 4, changes
    grid.run_until(lambda: grid.agree_on(nodes), 130, step_s=1)


@pytest.mark.parametrize(("count", "minority"), [(10, 1), (10, 5), (40, 13)])
def test_the_parts_of_a_cut_grid_find_each_other_again(count, minority):
    grid = Grid(10)
    nodes = grid.add_acquainted(count)
    grid.run_for(3)
    few, many = nodes[:minority], nodes[minority:]
    grid.cut_off(few)
    grid.run_until(lambda: grid.agree_on(few) and grid.agree_on(many), 90, step_s=0.5)
    grid.run_for(60)
    grid.seen.clear()
    grid.sim.heal()
    grid.run_until(lambda: grid.agree_on(nodes), 40, step_s=0.5)
    # No half believes, because of the other, that one of its own has died.
    assert grid.deaths_seen() == []


@pytest.mark.soak
def test_the_halves_of_a_large_cut_grid_find_each_other_again():
    grid = Grid(11, watched=False)
    nodes = grid.add_acquainted(600)
    grid.run_for(3)
    parts = nodes[:300], nodes[300:]
    grid.cut_off(parts[0])
    took_s = grid.run_until(lambda: all(map(grid.agree_on, parts)), 60, step_s=1)
    grid.run_for(60)
    grid.sim.heal()
    healed_s = grid.run_until(lambda: grid.agree_on(nodes), 60, step_s=1)
    print(f"600 nodes cut in two: parted after {took_s:.0f} s, one again after {healed_s:.0f} s")


def test_an_observer_sees_all_and_is_seen_by_nobody():
    grid = Grid(12)
    nodes = grid.add_acquainted(30)
    observer = grid.add("eye", ["n0", "n1"], observer=True)
    grid.run_until(lambda: "eye" in grid.joined, 3)
    assert grid.joined["eye"] == 30
    assert grid.agree_on(nodes, among=[*nodes, "eye"])
    observer.report(3.0, 1)
    grid.crash("n0")
    grid.agents["n7"].leave(lambda: None)
    grid.agents["n8"].report(2.5, 4)
    rest = [node for node in nodes if node not in ("n0", "n7")]
    grid.run_until(lambda: grid.agree_on(rest, among=[*rest, "eye"]), 15)
    assert observer.members()["n0"].state == "dead"
    assert observer.members()["n7"].state == "left"
    grid.run_until(lambda: observer.members()["n8"].load == 2.5, 15)
    assert observer.members()["n8"].waiting == 4
    grid.sim.crash("eye")
    grid.run_for(15)
    assert all("eye" not in grid.agents[node].members() for node in rest)


def test_an_observer_points_out_where_nobody_listens():
    """Its own connections tell it of a crash before anybody probes there."""
    took_s = []
    for seed in range(5):
        grid = Grid(seed)
        grid.add_acquainted(30)
        observer = grid.add("eye", ["n0"], observer=True)
        grid.run_for(2 + seed / 5)
        grid.crash("n5")
        grid.run_for(0.01)
        observer.receive("world", Unreachable("n5"))
        took_s.append(
            grid.run_until(
                lambda grid=grid: "dead" in grid.states_of("n5").values(), 3, step_s=0.005
            )
        )
        observer.receive("world", Unreachable("n6"))
        grid.run_for(5)
        assert {name for _, _, name in grid.deaths_seen()} == {"n5"}
    assert max(took_s) < 0.1


def test_an_observer_outlives_whom_it_reads_from():
    grid = Grid(13)
    nodes = grid.add_acquainted(12)
    observer = grid.add("eye", ["n0"], observer=True)
    grid.run_for(3)
    for node in nodes[:6]:
        grid.sim.freeze(node)
    grid.run_until(lambda: grid.agree_on(nodes[6:], among=[*nodes[6:], "eye"]), 25)
    for node in nodes[:6]:
        grid.sim.thaw(node)
    grid.run_until(lambda: grid.agree_on(nodes, among=[*nodes, "eye"]), 40)
    assert observer.news == 0


def test_loads_reach_everybody_and_only_changes_are_told():
    grid = Grid(14)
    nodes = grid.add_acquainted(40)
    grid.run_for(2)
    for _ in range(50):
        grid.agents["n1"].report(1.0, 0)
        grid.run_for(0.02)
    grid.agents["n1"].report(3.5, 7)
    grid.run_until(lambda: all(grid.agents[node].members()["n1"].load == 3.5 for node in nodes), 10)
    told = [(m.load, m.waiting) for _, node, m in grid.seen if node == "n2" and m.name == "n1"]
    assert told == [(1.0, 0), (3.5, 7)]
    assert grid.agents["n5"].members()["n1"].waiting == 7


def test_reports_are_limited_to_about_one_a_second():
    grid = Grid(15)
    grid.add_acquainted(5)
    grid.run_for(2)
    for number in range(1000):
        grid.agents["n1"].report(float(number), 0)
        grid.run_for(0.01)
    grid.run_for(5)
    told = [m.load for _, node, m in grid.seen if node == "n1" and m.name == "n1"]
    assert 8 <= len(told) <= 13
    assert grid.agents["n4"].members()["n1"].load == 999.0


def test_in_a_large_grid_what_lasts_a_moment_is_not_told():
    """From one task to the next, a machine is idle for a moment."""
    grid = Grid(5, settings=MembershipSettings(loads_per_s=1.0))  # 5 nodes: 5 s
    grid.add_acquainted(5)
    agent = grid.agents["n1"]
    agent.report(1.0, 0)
    grid.run_for(10)
    told = len(grid.seen)
    for _ in range(5):
        agent.report(0.0, 0)
        grid.run_for(0.5)
        agent.report(1.0, 0)
        grid.run_for(9.5)
    assert len(grid.seen) == told
    agent.report(0.0, 0)
    grid.run_for(15)
    assert {node: a.members()["n1"].load for node, a in grid.agents.items() if node != "n1"} == {
        node: 0.0 for node in grid.agents if node != "n1"
    }


def load_delays(count: int, changes_per_s: float, seconds: int, seed: int) -> list[float]:
    """How old the loads are that one node hears of, when it does."""
    grid = Grid(seed, watched=False)
    nodes = grid.add_acquainted(count)
    grid.run_for(2)
    reported: dict[tuple[str, float], float] = {}
    delays: list[float] = []

    def heard(member) -> None:
        at_s = reported.pop((member.name, member.load), None)
        if at_s is not None:
            delays.append(grid.sim.time - at_s)

    grid.agents["n0"].watch(heard)

    def change(node: str) -> None:
        load = grid.sim.time
        reported[node, load] = load
        grid.agents[node].report(load, 0)
        wait_s = grid.sim.random.expovariate(changes_per_s)
        grid.sim.at(grid.sim.time + wait_s, lambda: change(node))

    for node in nodes[1:]:
        first_s = grid.sim.random.expovariate(changes_per_s)
        grid.sim.at(grid.sim.time + first_s, lambda node=node: change(node))
    grid.run_for(seconds)
    assert len(delays) > 0.5 * (count - 1) * changes_per_s * seconds * 0.8
    return sorted(delays)


def test_loads_are_a_few_seconds_old():
    delays = load_delays(60, 0.1, 30, seed=1)
    assert delays[len(delays) // 2] < 4
    assert delays[int(0.95 * len(delays))] < 8


@pytest.mark.soak
@pytest.mark.parametrize("count", [100, 500, 1500])
def test_loads_are_a_few_seconds_old_at_scale(count):
    delays = load_delays(count, 0.1, 20, seed=2)
    middle, most = delays[len(delays) // 2], delays[int(0.95 * len(delays))]
    print(f"loads, n={count}: median {middle:.1f} s, 95 % {most:.1f} s")
    assert most < 12


def test_a_newer_version_of_the_news_is_noticed():
    grid = Grid(16)
    nodes = grid.add_acquainted(20)
    heard: list[tuple[str, int, str]] = []
    for node in nodes:

        def on_news(version: int, other: str, node: str = node) -> None:
            heard.append((node, version, other))
            grid.agents[node].news = version

        grid.agents[node].on_news = on_news
    eye = grid.add("eye", ["n0"], observer=True)
    eye.on_news = lambda version, other: heard.append(("eye", version, other))
    grid.run_for(5)
    assert heard == []
    grid.agents["n3"].news = 7
    grid.run_until(lambda: all(grid.agents[node].news == 7 for node in nodes), 15)
    assert {version for _, version, _ in heard} == {7}
    assert all(other != node for node, _, other in heard)
    grid.run_until(lambda: any(node == "eye" for node, _, _ in heard), 5)


def test_who_has_been_dead_for_long_is_forgotten():
    grid = Grid(17, settings=MembershipSettings(forget_s=30))
    nodes = grid.add_acquainted(6)
    grid.run_for(2)
    grid.crash("n5")
    grid.run_until(lambda: set(grid.states_of("n5").values()) == {"dead"}, 10)
    assert grid.agents["n0"].members()["n5"].state == "dead"
    grid.run_until(lambda: all("n5" not in grid.agents[node].members() for node in nodes[:5]), 40)
    grid.restart("n5")
    grid.run_until(lambda: grid.agree_on(nodes), 10)


def test_a_lone_node_goes_back_to_its_contacts():
    """Both halves have forgotten each other: only the contact is left."""
    grid = Grid(18, settings=MembershipSettings(forget_s=5))
    grid.add("n0")
    grid.add("n1", ["n0"])
    grid.run_until(lambda: grid.agree_on(["n0", "n1"]), 3)
    grid.cut_off(["n1"])
    grid.run_for(60)
    assert grid.agree_on(["n0"])
    grid.sim.heal()
    grid.run_until(lambda: grid.agree_on(["n0", "n1"]), 40)
