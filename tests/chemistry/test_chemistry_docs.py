"""Every program in docs/chemistry.md does what stands there; and the command that runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest
from surely import COMMAND, sureline

DOC = (Path(__file__).parents[2] / "docs" / "chemistry.md").read_text()
PAIRS = re.findall(r"^```chem\n(.*?)^```\n```result\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
MAX = "replace x::int, y::int by x if x >= y in <2, 4, 5, 7, 9>"


def test_every_program_of_the_page_has_its_result() -> None:
    assert len(PAIRS) == DOC.count("```chem\n") >= 8


@pytest.mark.parametrize(("program", "solution"), PAIRS)
@pytest.mark.parametrize("seed", ["1", "2"])
def test_programs_of_the_page(
    program: str, solution: str, seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sureline.cli.main import run_command

    (tmp_path / "p.chem").write_text(program)
    assert run_command(["react", str(tmp_path / "p.chem"), "--seed", seed]) == 0
    assert capsys.readouterr().out == solution


def test_the_workflow_of_the_page_runs(tmp_path: Path) -> None:
    (flow,) = re.findall(r"^```workflow\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    (tmp_path / "w.chem").write_text(flow)
    ran = sureline(tmp_path, "run", "w.chem", "--json")
    assert ran.code == 0 and ran.json["run"].startswith("squares")
    assert (tmp_path / "squares.txt").read_text() == "1\n4\n9\n"


def test_the_trace_of_the_page(tmp_path: Path) -> None:
    shown = re.findall(r"--trace\n((?:    .*\n)+)", DOC)[0]
    said = sureline(tmp_path, "react", MAX, "--trace")
    assert said.out.splitlines() == [line.strip() for line in shown.splitlines()]


def test_the_mistake_of_the_page(tmp_path: Path) -> None:
    shown = re.findall(r"^    (sureline: program:.*)$", DOC, re.MULTILINE)[0]
    said = sureline(tmp_path, "react", "replace x::int by y in <1>")
    assert (said.code, said.err.strip()) == (2, shown)


def test_feeding_as_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "max.chem").write_text(MAX)
    (line,) = re.findall(r"^    \$ (printf .* \| sureline react .* --feed)$", DOC, re.MULTILINE)
    line = line.replace("sureline", str(COMMAND))
    ran = subprocess.run(line, cwd=tmp_path, shell=True, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "<12>"


def test_react_as_json(tmp_path: Path) -> None:
    said = sureline(tmp_path, "react", MAX, "--json", "--trace")
    assert said.json["solution"] == [9]
    assert said.json["reactions"] == 4 and said.json["inert"] is True
    assert said.json["steps"] == len(said.json["trace"]) == 3
    assert [len(step["reactions"]) for step in said.json["trace"]] == [2, 1, 1]
    assert said.json["trace"][-1]["reactions"][0]["made"] == [9]
    mixed = sureline(tmp_path, "react", '<1, 0.5, "a", A, A:1, <2>, true>', "--json")
    assert mixed.json["solution"] == [0.5, 1, "a", "A", "true", "A:1", "<2>"]


def test_the_program_from_the_standard_input_and_molecules_from_it(tmp_path: Path) -> None:
    assert sureline(tmp_path, "react", "-", input=MAX).out == "<9>\n"
    fed = sureline(tmp_path, "react", MAX, "--feed", input="11, A:1\n12\n")
    assert fed.code == 0
    assert fed.out.splitlines()[-1] == "<12, A:1>"
    wrong = sureline(tmp_path, "react", MAX, "--feed", input="11\n12, z\n")
    assert wrong.code == 2 and "--feed:2: column 5: 'z' is not bound" in wrong.err
    assert sureline(tmp_path, "react", "-", "--feed", input=MAX).code == 2


def test_a_mistake_in_what_is_fed_ends_it_though_more_may_come(tmp_path: Path) -> None:
    line = [COMMAND, "react", MAX, "--feed"]
    with subprocess.Popen(line, cwd=tmp_path, stdin=PIPE, stdout=PIPE, stderr=PIPE) as fed:
        assert fed.stdin is not None and fed.stderr is not None
        fed.stdin.write(b"<3\n")
        fed.stdin.flush()
        said = fed.stderr.read().decode()  # it ends, and its input is still open
        assert "--feed:1: column 3" in said and said.count("\n") == 1
    assert fed.returncode == 2


def test_a_program_without_an_end_is_stopped_and_says_so(tmp_path: Path) -> None:
    said = sureline(tmp_path, "react", "replace x::int by x + 1 in <0>", "--steps", "7")
    assert (said.code, said.out) == (1, "<7>\n")
    assert "stopped before the solution was inert: --steps 7 are done" in said.err


@pytest.mark.parametrize("arguments", [["none.chem"], [MAX, "--steps", "-1"], ["."], ["<1"], [" "]])
def test_mistakes_of_the_user_are_sentences(tmp_path: Path, arguments: list[str]) -> None:
    said = sureline(tmp_path, "react", *arguments)
    assert said.code == 2 and said.err.startswith("sureline: ") and not said.out
