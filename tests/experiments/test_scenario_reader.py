"""Scenario files: what is read, and that all mistakes in one are told at once, with their lines."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.experiments.distributions import parse_distribution
from sureline.experiments.scenario import KINDS
from sureline.experiments.scenario_reader import find_scenario, read_scenario, shipped
from sureline.experiments.toml_table import ScenarioError, parse_number, parse_rate
from sureline.workflow.mistakes import UserError
from sureline.workflow.quantities import QuantityError, parse_duration

GOOD = """
name = "good"
seed = 7
duration = "1h30m"

[grid]
cores = 2
clock_offset = "uniform(-1s, 1s)"

[[grid.site]]
name = "near"
machines = 3

[[grid.site]]
name = "far"
machines = 2
cores = "choice(4, 8)"
speed = 1.5

[network]
delay = "5ms"
bandwidth = "1Gbit/s"

[[network.link]]
between = ["near", "far"]
delay = "lognormal(40ms, 0.1)"
loss = 0.01

[workload]
kind = "layered"
site = "far"
tasks = 50
work = "exponential(30s)"
runs = 2
every = "uniform(1s, 2s)"

[[faults.script]]
at = "30s"
what = "partition"
groups = [["near", "submitter"], ["far1", "far2"]]
for = "10s"

[[faults.random]]
what = "crash"
per_minute = 0.05
whom = ["near", "far2"]
for = "exponential(1min)"

[checks]
makespan = "40min"
"""


def read(text, **kwargs):
    return read_scenario(text.encode(), file="s.toml", beside=None, **kwargs)


def mistakes_of(text):
    with pytest.raises(ScenarioError) as caught:
        read(text)
    return {(m.line, m.what): m.hint for m in caught.value.mistakes}


def test_everything_written_is_read():
    s = read(GOOD)
    assert (s.name, s.seed, s.duration_s) == ("good", 7, 5400.0)
    near, far = s.sites
    assert s.machine_names() == ["near1", "near2", "near3", "far1", "far2"]
    assert near.cores.draw(Random(1)) == 2
    assert {far.cores.draw(Random(n)) for n in range(20)} == {4, 8}
    assert near.clock_offset_s == far.clock_offset_s  # a site has what the grid says
    assert (near.speed.draw(Random(1)), far.speed.draw(Random(1))) == (1.0, 1.5)
    assert s.network.link.bandwidth_bytes_s == 125e6
    ((a, b, link),) = s.network.between
    assert (a, b, link.loss, link.bandwidth_bytes_s) == ("near", "far", 0.01, 125e6)
    assert s.workload.site == "far"
    assert s.submitter_names() == ["submitter1", "submitter2"]
    cut, crashes = s.faults
    assert (cut.at_s, cut.groups) == (30.0, (("near", "submitter"), ("far1", "far2")))
    assert (crashes.per_minute, crashes.count, crashes.whom) == (0.05, 1, ("near", "far2"))
    assert s.meant("submitter") == ["submitter1", "submitter2"]
    assert s.meant("far2") == ["far2"]
    assert s.meant("far3") == s.meant("far02") == s.meant("far")[2:] == []
    assert s.checks.makespan_s == 2400.0


def test_all_mistakes_at_once_with_their_lines():
    found = mistakes_of(
        """nme = "x"
duration = "-5"
[grid]
machines = 3
cores = "unifrm(1, 2)"
[[grid.site]]
name = "a"
coers = 3
[network]
loss = 2
[[network.link]]
between = ["a", "c"]
[workload]
kind = "montag"
[[faults.script]]
what = "explode"
[[faults.random]]
what = "crash"
whom = "peeers"
[checks]
finish = 1
"""
    )
    assert found[1, "unknown key `nme`"] == "did you mean 'name'?"
    assert (2, "`duration`: '-5' is negative") in found
    assert found[4, "`grid.machines`: there are sites"] == "give each [[grid.site]] its own number"
    assert (
        found[5, "`grid.cores`: 'unifrm' is not a distribution for this"]
        == "did you mean 'uniform'?"
    )
    assert found[8, "unknown key `grid.site.coers`"] == "did you mean 'cores'?"
    assert (10, "`network.loss`: 2 is out of bounds") in found
    assert (12, "`network.link.between`: 'c' is not a site") in found
    assert found[14, "`workload.kind`: 'montag' is not known"] == "did you mean 'montage'?"
    assert (15, "there is no `faults.script.at`") in found
    assert (16, "`faults.script.what`: 'explode' is not known") in found
    assert (17, "there is no `faults.random.every`") in found
    assert found[19, "`faults.random.whom`: 'peeers' is nobody here"] == "did you mean 'peers'?"
    assert (21, "`checks.finish`: 1 is neither true nor false") in found
    assert len(found) == 13


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("seed = \n", 1, "not valid TOML"),
        ("[workload]\nkind = 'chain'\nwidth = 3\n", 3, "unknown key `workload.width`"),
        ("[workload]\nkind = 'chain'\nstrategy = 'embedded'\n", 3, "'embedded' is for one"),
        ("[workload]\nkind = 'workflow'\n", 1, "there is no `workload.file`"),
        ("[workload]\nkind='chain'\n[faults]\nscript = 3\n", 4, "not a list of tables"),
        ("duration = '1h'\n", None, "there is no `workload`"),
        ("[workload]\nkind='chain'\nfail=true\n", 3, "neither a text nor a number"),
        ("[workload]\nkind='chain'\ntasks=0\n", 3, "not a whole number in range"),
        ("[workload]\nkind='chain'\nsettings={pace=2}\n", 3, "spread has no setting 'pace'"),
    ],
)
def test_one_mistake(text, line, what):
    found = mistakes_of(text)
    assert any(at == line and what in said for at, said in found), found


def test_shipped_scenarios_can_be_read_and_say_what_they_are():
    names = shipped()
    assert {"quiet-lab", "lab-churn", "two-sites", "eight-two-killed", "partition"} <= set(names)
    assert all(names.values())
    kinds = {find_scenario(name).workload.kind for name in names}
    assert kinds <= set(KINDS)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="did you mean 'lab-churn'"):
        find_scenario("lab-chrun")
    with pytest.raises(UserError, match="there is no file"):
        find_scenario("nowhere.toml")


@pytest.mark.parametrize(
    ("written", "parse"),
    [
        ("uniform(3, 1)", parse_number),
        ("normal(1, -1)", parse_number),
        ("exponential(0s)", parse_duration),
        ("lognormal(1s)", parse_duration),
        ("gauss(1, 2)", parse_number),
        ("uniform(a, b)", parse_number),
        ("pareto(1, 0)", parse_number),
        ("nan", parse_number),
    ],
)
def test_senseless_distributions_are_refused(written, parse):
    with pytest.raises(QuantityError):
        parse_distribution(written, parse)


@given(st.integers(), st.floats(0.1, 100), st.floats(0.1, 3))
def test_draws_stay_in_bounds_and_follow_the_seed(seed, middle, spread):
    for form in (f"normal({middle}, {spread})", f"lognormal({middle}, {spread})"):
        d = parse_distribution(form, parse_number, least=0.5, most=20.0)
        drawn = [d.draw(Random(seed)) for _ in range(2)]
        assert drawn[0] == drawn[1]
        assert 0.5 <= drawn[0] <= 20.0


@pytest.mark.parametrize(
    ("form", "mean"),
    [
        ("uniform(2, 6)", 4.0),
        ("normal(5, 1)", 5.0),
        ("lognormal(3, 0.5)", 3.0 * 2.718281828**0.125),
        ("exponential(7)", 7.0),
        ("pareto(2, 3)", 3.0),
        ("choice(1, 2, 6)", 3.0),
    ],
)
def test_distributions_have_the_means_they_should(form, mean):
    d, random = parse_distribution(form, parse_number), Random(3)
    drawn = [d.draw(random) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.05)


def test_rates_in_bits_and_bytes():
    assert parse_rate("1Gbit/s") == parse_rate("125MB/s") == parse_rate("125000000") == 125e6
    with pytest.raises(QuantityError):
        parse_rate("fast")
