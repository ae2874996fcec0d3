"""The examples do what their READMEs say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sites_lab import why_not
from surely import COMMAND, sureline

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples"
FLOWS = sorted(EXAMPLES.glob("*/*.yaml"))


@pytest.fixture
def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the example that the test's parameter names."""
    where = tmp_path / request.param
    left_by_runs = shutil.ignore_patterns(".sureline")
    shutil.copytree(EXAMPLES / request.param, where, ignore=left_by_runs)
    return where


def test_every_folder_has_a_readme() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert {"wordcount", "sweep", "mosaic", "calls"} <= folders
    assert all((EXAMPLES / name / "README.md").exists() for name in folders)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.stem)
def test_is_valid(flow: Path) -> None:
    said = sureline(flow.parent, "validate", flow.name, "--json")
    assert said.code == 0, said.err


@pytest.mark.parametrize("copied", ["wordcount"], indirect=True)
def test_wordcount(copied: Path) -> None:
    said = sureline(copied, "run", "wordcount.yaml", "--json")
    assert said.code == 0, said.err
    words = (copied / "big.txt").read_text().split()
    assert int((copied / "total.txt").read_text()) == len(words)
    top = [line.split() for line in (copied / "top.txt").read_text().splitlines()]
    letters = re.findall("[a-z]+", (copied / "big.txt").read_text())
    assert top[0] == [str(letters.count("the")), "the"]
    assert len(top) == 20
    again = sureline(copied, "run", "wordcount.yaml", "--json").json["tasks"]
    assert again["reused"] == again["total"] == 11


@pytest.mark.parametrize("copied", ["wordcount"], indirect=True)
def test_the_text_comes_from_its_script(copied: Path) -> None:
    made = subprocess.run(["sh", "make_text.sh"], cwd=copied, capture_output=True, check=True)
    assert made.stdout == (copied / "big.txt").read_bytes()


@pytest.mark.parametrize("copied", ["sweep"], indirect=True)
def test_sweep(copied: Path) -> None:
    said = sureline(copied, "run", "sweep.yaml", "--set", "steps=2000", "--json")
    assert said.code == 0, said.err
    head, *rows = [line.split() for line in (copied / "table.txt").read_text().splitlines()]
    assert head == ["r", "x0", "lyapunov", "mean", "values"]
    assert len(rows) == 32
    assert (copied / "best.txt").read_text().split() == max(rows, key=lambda row: float(row[2]))
    summary = (copied / "summary.txt").read_text().splitlines()
    assert [line.split()[2] for line in summary] == list(dict.fromkeys(row[0] for row in rows))
    assert "comes to rest" in summary[0]
    assert "repeats after 2 steps" in summary[1]
    assert "chaos" in summary[-1]


@pytest.mark.parametrize("copied", ["sweep"], indirect=True)
def test_one_more_value_runs_only_what_is_new(copied: Path) -> None:
    run = ("run", "sweep.yaml", "--set", "steps=100", "--json")
    assert sureline(copied, *run).code == 0
    flow = copied / "sweep.yaml"
    flow.write_text(flow.read_text().replace('r: ["2.8"', 'r: ["2.7", "2.8"'))
    tasks = sureline(copied, *run).json["tasks"]
    simulated, merged = 4, 2
    assert simulated + merged <= tasks["succeeded"] <= simulated + 3
    assert tasks["succeeded"] + tasks["reused"] == tasks["total"] == 39


@pytest.mark.parametrize("copied", ["mosaic"], indirect=True)
def test_mosaic(copied: Path) -> None:
    said = sureline(copied, "run", "mosaic.yaml", "--set", "size=80", "--json")
    assert said.code == 0, said.err
    assert said.json["tasks"]["succeeded"] == 102
    before, after, _ = [
        float(line.split()[-1]) for line in (copied / "seams.txt").read_text().splitlines()
    ]
    assert after < before / 10
    format_, wide, high, most, *pixels = (copied / "preview.corrected.pgm").read_text().split()
    assert (format_, most) == ("P2", "255")
    assert len(pixels) == int(wide) * int(high) > 1000
    assert len(set(pixels)) > 50
    corrections = [
        float(line.split()[1]) for line in (copied / "corrections.txt").read_text().splitlines()
    ]
    assert len(corrections) == 16
    assert abs(sum(corrections)) < 0.1


@pytest.mark.parametrize("copied", ["calls"], indirect=True)
def test_calls(copied: Path) -> None:
    first, second = (
        subprocess.run(
            [sys.executable, "calls.py"], cwd=copied, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    for said in (first, second):
        assert "78498 primes below 1000000; the first piece has 11734" in said
        assert "because of: ZeroDivisionError('division by zero')" in said
        assert "what was finished is there: 0.25" in said
        assert "in the executor: [1.0, 0.5, 0.25]" in said
    assert "succeeded=10, reused=0" in first
    assert "succeeded=0, reused=10" in second


@pytest.mark.limit_s(600)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_demo(tmp_path: Path, times: int) -> None:
    """As `make demo` runs it, also where it was run before; with smaller pictures."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns(".sureline"))
    flow = tmp_path / "examples" / "mosaic" / "mosaic.yaml"
    text = flow.read_text()
    assert 'size: "256"' in text
    flow.write_text(text.replace('size: "256"', 'size: "128"'))
    for _ in range(times):
        done = subprocess.run(
            ["bash", "examples/demo.sh", COMMAND],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "interrupted" in done.stdout
        assert "All claims hold" in done.stdout


@pytest.mark.soak
@pytest.mark.limit_s(600)
def test_grid_demo() -> None:
    """As `make grid-demo` runs it; a smaller walk through a firewall is in tests/grid."""
    if why_not():
        pytest.skip(why_not())
    done = subprocess.run(
        ["bash", "examples/grid-demo.sh", COMMAND],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All of it holds" in done.stdout
