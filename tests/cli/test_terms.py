"""Terms on the command line, and what becomes of them: refused, kept, repaired, missed."""

from __future__ import annotations

import datetime
import os

import pytest
from surely import sureline, write

from sureline.cli.terms import moment_of, terms
from sureline.compose.terms import before
from sureline.forecast.result import QUANTILE_SHARES, Basis, Forecast
from sureline.run.feasible import quantile_s, refusal
from sureline.workflow.mistakes import UserError
from sureline.workflow.read import read_workflow
from sureline.workflow.terms import Terms

NOON = datetime.datetime(2030, 5, 17, 12, 0).timestamp()
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("18:00", 6.0),
        ("11:30", 23.5),
        ("12:00", 24.0),
        ("12:00:30", 30 / HOUR_S),
        ("2030-05-17T13:00", 1.0),
        ("2030-05-18 12:00", 24.0),
    ],
)
def test_a_moment_is_the_next_that_a_person_can_mean(text, hours):
    assert moment_of(text, NOON) == pytest.approx(NOON + hours * HOUR_S)


def test_a_moment_with_an_offset_is_absolute():
    assert moment_of("2031-01-01T00:00+00:00", NOON) == 1924992000.0


@pytest.mark.parametrize("text", ["25:00", "noon", "", "2030-05-17T11:00", "18", "2030-13-01"])
def test_what_is_no_moment_to_come_is_refused(text):
    with pytest.raises(UserError, match="--by"):
        moment_of(text, NOON)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("20m", "18:00", None, None), "twice"),
        (("soon", None, None, None), "--within: 'soon'"),
        (("0", None, None, None), "no time"),
        (("20m", None, -1.0, None), "--budget"),
        (("20m", None, float("nan"), None), "--budget"),
        (("20m", None, None, "1.5"), "--surety"),
        (("20m", None, None, "high"), "--surety"),
        ((None, None, None, "0.9"), "add --within or --by"),
    ],
)
def test_terms_that_make_no_sense_are_told_in_one_sentence(given, says):
    with pytest.raises(UserError, match=says):
        terms(*given)


def test_terms_are_read():
    asked = terms("20m", None, 65.0, "95 %")
    assert asked.budget == 65.0
    assert asked.surety == 0.95
    assert terms(None, None, None, None) == Terms()


def forecast(surety, guess=0):
    """Of a run that is equally likely to end at any time up to 100 s."""
    times = tuple(100.0 * share for share in QUANTILE_SHARES)
    basis = Basis(takes=1, guess=guess)
    return Forecast(
        0.0, 50, 90, 0, 100, 0, 0, 1, basis, 1000, 0.0, quantiles_s=times, surety=surety
    )


def test_a_refusal_names_the_smallest_change_of_each_term():
    refused = refusal(forecast(0.405), Terms(40.5, None, 0.9))
    assert refused is not None
    assert (refused.within_s, refused.surety) == (90, 0.4)
    assert refusal(forecast(0.9), Terms(90.0, None, 0.9)) is None
    assert refusal(forecast(0.1, guess=1), Terms(10.0, None, 0.9)) is None
    hopeless = refusal(forecast(0.001), Terms(0.1, None, 0.9))
    assert hopeless is not None
    assert hopeless.surety == 0.0


def test_quantiles_between_those_that_are_known():
    assert quantile_s(forecast(None), 0.925) == pytest.approx(92.5)
    assert quantile_s(forecast(None), 0.999) == 100
    assert quantile_s(forecast(None), 0.001) == pytest.approx(1.0)


LONG = """
tasks:
  long: {run: "true", takes: 1h}
"""


def test_a_deadline_that_cannot_be_met_is_refused_before_anything_starts(tmp_path):
    write(tmp_path, "flow.yaml", LONG)
    for command in ("run", "submit"):
        said = sureline(tmp_path, command, "flow.yaml", "--within", "20min", "--json")
        assert said.code == 3, said
        refused = said.json["refused"]
        assert refused["nearest"]["within"] >= 3600
        assert refused["nearest"]["surety"] is None
        assert "--within 36" in said.err
    assert not (tmp_path / ".sureline").exists()
    said = sureline(tmp_path, "run", "flow.yaml", "--within", "20min", "--anyway", "--json")
    assert said.code == 0
    assert said.json["late_s"] == 0.0


def test_a_run_that_ends_late_keeps_its_results_and_says_so(tmp_path):
    write(tmp_path, "flow.yaml", 'tasks:\n  t: {run: "sleep 1; echo a > a.txt", outputs: a.txt}\n')
    said = sureline(tmp_path, "run", "flow.yaml", "--within", "0.5s")
    assert said.code == 3, said
    assert "later than the deadline" in said.out
    assert "partly a guess" in said.err
    assert (tmp_path / "a.txt").read_text() == "a\n"
    said = sureline(tmp_path, "wait", "last", "--json")
    assert said.code == 3
    assert said.json["late_s"] > 0
    shown = sureline(tmp_path, "show", "--json").json
    assert shown["terms"]["late_s"] == said.json["late_s"]
    assert shown["terms"]["surety_wanted"] == 0.9


MADE = """
tasks:
  first: {run: cat in.txt > a.txt, inputs: in.txt, outputs: a.txt, takes: 1h}
  second: {run: cat a.txt > b.txt, inputs: a.txt, outputs: b.txt, takes: 1h}
"""


def test_what_was_made_already_counts_as_done_before_the_start(tmp_path):
    write(tmp_path, "flow.yaml", MADE)
    source = write(tmp_path, "in.txt", "a\n")
    os.utime(source, (1, 1))  # older than a file that may still be written to
    assert sureline(tmp_path, "run", "flow.yaml").code == 0
    said = sureline(tmp_path, "run", "flow.yaml", "--within", "20min", "--json")
    assert said.code == 0, said
    assert said.json["tasks"]["reused"] == 2
    graph = read_workflow(tmp_path / "flow.yaml", directory=tmp_path).graph
    home = tmp_path / ".sureline"
    assert before(graph, home, fresh=False).reused == (0, 1)
    assert before(graph, home, fresh=True).reused == ()
    (tmp_path / "a.txt").unlink()  # the store has it still
    assert before(graph, home, fresh=False).reused == (0, 1)
    source.write_text("another\n")
    assert before(graph, home, fresh=False).reused == ()


HANGS = """
name: hangs
tasks:
  slow:
    run: if mkdir MARK 2>/dev/null; then sleep 1000; fi; echo a > a.txt
    outputs: a.txt
    takes: 1s
  last: {run: cat a.txt > out.txt, inputs: a.txt, outputs: out.txt, takes: 1s}
"""


def test_a_task_that_hangs_is_run_again_and_the_run_ends_in_time(tmp_path):
    write(tmp_path, "flow.yaml", HANGS.replace("MARK", str(tmp_path / "mark")))
    terms_ = ["--within", "40s", "--surety", "0.99", "--cores", "2"]
    said = sureline(tmp_path, "run", "flow.yaml", *terms_, "--progress", "lines")
    assert said.code == 0, said
    assert (tmp_path / "out.txt").read_text() == "a\n"
    assert "attempt 2 of slow was started" in said.err
    shown = sureline(tmp_path, "show", "--json").json
    (repair,) = shown["repairs"]
    assert (repair["action"], repair["task"], repair["attempt"]) == ("duplicate", "slow", 2)
    assert repair["surety_before"] < 0.99 <= repair["surety_after"]
    assert shown["terms"]["planned"]["surety"] > 0.99
    story = sureline(tmp_path, "story", "slow").out
    assert "another attempt was done first" in story
    assert "surety fell to" in story
    explained = sureline(tmp_path, "explain", "slow").out
    assert "attempt 2 of slow was started" in explained
    standing = sureline(tmp_path, "status", "--json").json
    assert standing["repairs"] == shown["repairs"]
    sureline(tmp_path, "report", "-o", "report.html")
    assert '"repairs":[[' in (tmp_path / "report.html").read_text()
