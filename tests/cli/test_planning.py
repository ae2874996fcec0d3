"""`sureline plan` and `sureline reproduce` as a user meets them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from surely import COMMAND, sureline

from sureline.cli.main import run_command
from sureline.experiments import surety_paper

TERMS = ("--within", "20", "--budget", "65", "--surety", "0.9")


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "paper.txt").write_text(surety_paper.PROGRAM)
    (tmp_path / "bids.csv").write_text(surety_paper.TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = run_command(["plan", *words, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out), said.err


def test_the_papers_plan(where: Path) -> None:
    said = sureline(
        where, "plan", "paper.txt", "--bids", "bids.csv", *TERMS, "--method", "pert", "--json"
    )
    assert said.code == 0 and said.err == ""
    made = said.json
    assert (made["cost"], made["reserve"], made["expected"]) == (38, 27, 18)
    assert (made["earliest"], made["latest"]) == (14, 22)
    assert made["surety"] == pytest.approx(0.9830525732376554, rel=1e-12)
    assert made["critical_path"] == ["A", "C", "D"]
    assert made["assignment"] == {
        "A": "first", "B": "first", "C": "first", "D": "second", "E": "third",
    }  # fmt: skip
    assert [p["cost"] for p in made["front"]] == [38, 41, 46, 51]
    assert made["refused"] is None


@pytest.mark.parametrize("method", ["pert", "montecarlo", "cpm"])
def test_refused(where: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    words = ("paper.txt", "--bids", "bids.csv", "--method", method)
    code, made, _ = plan(capsys, *words, "--within", "17", "--budget", "40", "--surety", "99%")
    assert code == 3 and made["cost"] is None and made["assignment"] == {}
    near = made["refused"]["nearest"]
    asked = {"within": 17, "budget": 40, "surety": 0.99}
    for term, value in near.items():
        if value is not None:
            terms = {**asked, term: value}
            options = [f"--{name}={amount!r}" for name, amount in terms.items()]
            again, enough, _ = plan(capsys, *words, *options)
            assert again == 0, (term, enough["refused"])
    assert [term for term, value in near.items() if value is not None] == (
        ["within", "budget"] if method == "cpm" else ["within", "budget", "surety"]
    )


def test_a_text_for_people(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "paper.txt", "--bids", "bids.csv", *TERMS, "--method", "pert"]) == 0
    out = capsys.readouterr().out
    assert "98.31 %" in out and "leaving 27 in reserve" in out and "A -> C -> D" in out
    assert "●" in out and "█" in out and "¦ 20" in out
    words = ["plan", "paper.txt", "--bids", "bids.csv", "--within", "10"]
    assert run_command(words) == 3
    out = capsys.readouterr().out
    assert out.startswith("refused: no plan ends within 10") and "--within 14" in out


def test_a_page(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (where / "paper.txt").write_text(surety_paper.PROGRAM.replace("A", "Äpfel"))
    words = ["plan", "paper.txt", "--bids", "bids.csv", *TERMS, "--html", "plan.html"]
    assert run_command(words) == 0
    page = (where / "plan.html").read_text()
    assert page.count("<svg") == 3 and "Äpfel" in page and "<script" not in page
    assert page.count("<circle") == len(plan(capsys_drained(capsys), *words[1:])[1]["front"])


def capsys_drained(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--surety", "0.9"), "give one with --within"),
        (("--within", "20", "--surety", "2"), "not a chance"),
        (("--within", "20 min"), "the unit of the bids"),
        (("--within", "-1"), "not a number of 0 or more"),
        (("--budget", "-5"), "not an amount"),
        (("--weights", "1,2"), "three weights"),
        (("--weights", "0,0,0"), "three weights"),
        (("--grid", "lab"), "exclude each other"),
        (("--set", "a=1"), "leave out --set"),
        (("--html", "."), "is a directory"),
        (("--seed", "-1"), "is negative"),
    ],
)
def test_bad_options(
    where: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
) -> None:
    assert run_command(["plan", "paper.txt", "--bids", "bids.csv", *options]) == 2
    assert told in capsys.readouterr().err


def test_bad_files(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "paper.txt"]) == 2
    assert "need providers" in capsys.readouterr().err
    assert run_command(["plan", "paper.txt", "--bids", "none.csv"]) == 2
    (where / "bids.csv").write_text("service,provider,cost,time,variance\na,b,c,d,e\n")
    code, made, _ = plan(capsys_drained(capsys), "paper.txt", "--bids", "bids.csv")
    assert code == 2 and {m["line"] for m in made["error"]["mistakes"]} == {2}


def test_a_typing_error_in_a_service_is_told(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = surety_paper.TABLE.replace("service4", "servce4")
    (where / "bids.csv").write_text(table)
    code, made, err = plan(capsys, "paper.txt", "--bids", "bids.csv")
    assert code == 3 and made["refused"]["why"] == "nobody bids for service4"
    assert "no task uses servce4; did you mean 'service4'?" in err


def test_composition_from_standard_input(where: Path) -> None:
    said = subprocess.run(
        [COMMAND, "plan", "-", "--bids", "bids.csv", "--json"],
        input=surety_paper.PROGRAM, capture_output=True, text=True, cwd=where, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout)["cost"] == 38


def test_a_workflow_file_with_bids(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (where / "flow.yaml").write_text(
        "tasks:\n  one: {run: 'true'}\n  two: {run: 'true', after: one}\n"
        "  many: {for: {i: 1..3}, run: 'true', after: two}\n"
    )
    (where / "b.csv").write_text(
        "service,provider,cost,time,variance\none,p,1,2,0\ntwo,p,1,2,0\nmany,p,1,5,0\nmany,q,2,4,0\n"
    )
    code, made, _ = plan(capsys, "flow.yaml", "--bids", "b.csv", "--within", "8")
    assert code == 0 and made["expected"] == 8 and made["cost"] == 8
    assert {made["assignment"][f"many:{i}"] for i in (1, 2, 3)} == {"q"}


def test_on_this_machine(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (where / "flow.yaml").write_text(
        "tasks:\n  one: {run: 'true', takes: 5s}\n  two: {run: 'true', takes: 5s}\n"
        "  end: {run: 'true', after: [one, two], takes: 1s .. 2s .. 3s}\n"
    )
    code, made, _ = plan(capsys, "flow.yaml", "--within", "9", "--cores", "2")
    assert code == 0 and made["cost"] == 0 and made["assignment"] == {}
    assert 6.9 < made["expected"] < 7.1 and made["surety"] == 1
    assert made["source"] == "from 'takes' of 3 tasks"
    code, made, _ = plan(capsys, "flow.yaml", "--within", "9", "--cores", "1")
    assert code == 3 and 12.5 < made["refused"]["nearest"]["within"] < 13
    code, made, _ = plan(
        capsys, "flow.yaml", "--within", "7", "--method", "pert", "--surety", "0.5"
    )
    assert code == 0 and made["expected"] == 7 and made["surety"] == 0.5


def test_every_key_is_documented(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = Path(__file__).parents[2] / "docs/json.md"
    documented = set(re.findall(r"[a-z0-9_]+", documents.read_text()))
    for words in (TERMS, ("--within", "1")):
        made = plan(capsys, "paper.txt", "--bids", "bids.csv", *words)[1]
        assert set(_keys(made)) <= documented
    run_command(["reproduce", "surety", "--json"])
    assert set(_keys(json.loads(capsys.readouterr().out))) <= documented


def _keys(value: Any) -> Iterator[str]:
    """Of all objects but assignments, whose keys are tasks."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key != "assignment":
                yield from _keys(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def test_reproduce(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["reproduce", "surety", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert len(made["schedules"]) == 36 and len(made["front"]) == 4
    verdicts = {number["paper"]: number["follows"] for number in made["numbers"]}
    expected = {"98.31 %": True, "14.44 %": True, "85.56 %": True, "95.83 %": False, "11": False}
    assert {paper: verdicts[paper] for paper in expected} == expected
    assert verdicts["lower than 38"] is False
    assert sum(not number["follows"] for number in made["numbers"]) == 3
    assert run_command(["reproduce", "surety"]) == 0
    assert "DOES NOT FOLLOW" in capsys.readouterr().out
