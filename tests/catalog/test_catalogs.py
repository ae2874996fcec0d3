"""The user's catalogs: what is written down, found again, and complained of by file and line."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from surely import sureline

from sureline.catalog.entries import (
    SiteEntry,
    Transformation,
    preamble,
    site_catalog,
    transformation_catalog,
)
from sureline.catalog.replicas import Replica, Replicas
from sureline.workflow.mistakes import UserError, WorkflowError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


LAB = SiteEntry("lab", "local", 8.0, 2 * 10**9, "/scratch/a b", tags=("gpu", "x:y"))
FAR = SiteEntry("far", "slurm", 200.0, address="me@far", settings={"partition": "a # b"})


def test_what_is_added_is_read_back_and_comments_stay():
    file = site_catalog()
    file.add(LAB)
    text = "# mine\n" + file.path.read_text() + "\n# the big one\n"
    file.path.write_text(text)
    file.add(FAR)
    assert list(file.read().values()) == [LAB, FAR]
    file.remove("lab")
    assert list(file.read().values()) == [FAR]
    left = file.path.read_text()
    assert left.startswith("# mine\n") and "# the big one" in left
    file.remove("far")
    assert file.read() == {} and "# mine" in file.path.read_text()


def test_a_name_is_there_once_and_one_that_is_not_there_cannot_go():
    file = site_catalog()
    file.add(LAB)
    with pytest.raises(UserError, match="has lab already"):
        file.add(LAB)
    with pytest.raises(UserError, match="did you mean 'lab'"):
        file.remove("labb")
    with pytest.raises(UserError, match="cannot be a name"):
        file.add(SiteEntry("here", "local", 1.0))
    with pytest.raises(UserError, match="far has no address; write `address: USER@HOST`"):
        file.add(SiteEntry("far", "ssh", 1.0))
    with pytest.raises(UserError, match="none has no processors"):
        file.add(SiteEntry("none", "local", 0.0))


def test_a_file_that_only_a_person_can_edit_is_left_alone():
    file = site_catalog()
    file.add(LAB)
    flow = "{lab: {engine: local, processors: 1}, far: {engine: local, processors: 1}}\n"
    file.path.write_text(flow)
    with pytest.raises(UserError, match="only you can edit"):
        file.remove("lab")
    assert file.path.read_text() == flow


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a:\n  engine: slrum\n  processors: 2\n", 2, "did you mean 'slurm'"),
        ("a:\n  engine: local\n", 1, "has no processors"),
        ("a:\n  engine: local\n  processors: many\n", 3, "processors"),
        ("a:\n  engine: local\n  processors: 2\n  procesors: 3\n", 4, "did you mean 'processors'"),
        ("a:\n  engine: ssh\n  processors: 2\n", 1, "has no address"),
        ("a:\n  engine: local\n  processors: 2\n  settings: x\n", 4, "not a mapping"),
        ("a: 3\n", 1, "not a mapping"),
        ("here:\n  engine: local\n  processors: 2\n", 1, "cannot be a name"),
        ("a: {engine: [\n", 2, "not valid YAML"),
        ("- a\n", 1, "not a mapping"),
    ],
)
def test_mistakes_have_a_file_and_a_line(text, line, said):
    file = site_catalog()
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text)
    with pytest.raises(WorkflowError) as caught:
        file.read()
    found = [m for m in caught.value.mistakes if said in str(m)]
    assert found and found[0].line == line and found[0].file == str(file.path)


def test_many_at_once_lose_nothing():
    names = [f"s{n}" for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: site_catalog().add(SiteEntry(name, "local", 1.0)), names))
        rows = [[Replica(name, "here", f"/{name}", "d", 1)] for name in names]
        list(pool.map(Replicas().add, rows))
    assert sorted(site_catalog().read()) == sorted(names)
    assert sorted(row.logical for row in Replicas().all()) == sorted(names)


def test_programs_are_called_as_they_are_at_the_site(tmp_path):
    tool = tmp_path / "the tool"
    tool.write_text("#!/bin/sh\necho called with $1\n")
    tool.chmod(0o755)
    file = transformation_catalog()
    file.add(Transformation("blast", {"lab": {"path": str(tool)}}))
    both = Transformation("blast", {"lab": {"path": str(tool)}, "far": {"module": "blast/2"}})
    file.add(both, replace=True)
    assert file.read() == {"blast": both}
    script = preamble("lab", "blast x", file.read()) + "blast x"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "called with x\n"
    assert preamble("far", "cat a | blast", file.read()) == "module load blast/2\n"
    assert preamble("lab", "cat blast.txt ./blast", file.read()) == ""
    file.path.write_text("blast:\n  lab: {path: /a, module: b}\n")
    with pytest.raises(WorkflowError, match=r"yaml:2: blast at lab is not called in one way"):
        file.read()


# -- the commands ------------------------------------------------------------------------------


def run(directory, *words, code=0):
    said = sureline(directory, *words, "--json")
    assert said.code == code, said
    return said.json


def test_sites_by_command(tmp_path):
    flags = ("--engine", "local", "--processors", "2", "--files", str(tmp_path / "spool"))
    run(tmp_path, "catalog", "sites", "add", "lab", *flags)
    (row,) = run(tmp_path, "catalog", "sites")["sites"]
    assert (row["name"], row["engine"], row["processors"]) == ("lab", "local", 2)
    assert run(tmp_path, "catalog", "sites", "check")["checked"] == [
        {"what": "lab", "trouble": None}
    ]
    (tmp_path / "spool").rename(tmp_path / "gone")
    (tmp_path / "spool").touch()
    (found,) = run(tmp_path, "catalog", "sites", "check", code=1)["checked"]
    assert "cannot" in found["trouble"]
    run(tmp_path, "catalog", "sites", "rm", "lab")
    assert run(tmp_path, "catalog", "sites")["sites"] == []
    assert sureline(tmp_path, "catalog", "sites", "add", "lab").code == 2


def test_replicas_by_command(tmp_path):
    (tmp_path / "a").write_text("x")
    run(tmp_path, "catalog", "replicas", "add", "data/a", str(tmp_path / "a"))
    (row,) = run(tmp_path, "catalog", "replicas", "ls", "data/a")["replicas"]
    assert (row["site"], row["path"], row["size"]) == ("here", str(tmp_path / "a"), 1)
    run(tmp_path, "catalog", "replicas", "check")
    (tmp_path / "a").write_text("y")
    (found,) = run(tmp_path, "catalog", "replicas", "check", code=1)["checked"]
    assert found["trouble"] == "its content is not what it was"
    run(tmp_path, "catalog", "replicas", "rm", "data/a")
    assert run(tmp_path, "catalog", "replicas")["replicas"] == []
    run(tmp_path, "catalog", "replicas", "rm", "data/a", code=2)
    run(tmp_path, "catalog", "replicas", "add", "b", "nowhere:/b", code=2)


FLOW = """\
tasks:
  one: {run: tr a b < in > mid, inputs: in, outputs: mid}
  two: {run: cat mid mid > out, inputs: mid, outputs: out}
  other: {run: echo > other, outputs: other}
"""


def test_programs_are_looked_for_where_they_are_to_be(tmp_path):
    site_catalog().add(SiteEntry("lab", "local", 1.0))
    ways = {"sh": "/bin/sh", "none": "/no/such"}
    for name, path in ways.items():
        transformation_catalog().add(Transformation(name, {"lab": {"path": path}}))
    transformation_catalog().add(Transformation("far", {"mars": {"module": "x/1"}}))
    said = sureline(tmp_path, "catalog", "transformations", "check")
    assert said.code == 1
    assert said.out.splitlines() == [
        "sh at lab: is as it should be",
        "none at lab: is not there",
        "far at mars: no such site is in sites.yaml",
    ]


def test_how_a_file_was_made_and_made_again(tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "in").write_text("aa\n")
    run(tmp_path, "run", "flow.yaml")
    steps = run(tmp_path, "catalog", "made", "out")["steps"]
    assert [step["task"] for step in steps] == ["two", "one"]
    assert steps[0]["command"] == "cat mid mid > out"
    assert [i[0] for i in steps[0]["inputs"]] == ["mid"] and steps[0]["inputs"][0][2] == "one"
    assert steps[1]["inputs"][0][0] == "in" and steps[1]["inputs"][0][2] == ""
    os.unlink(tmp_path / "out")
    done = run(tmp_path, "catalog", "made", "out", "--again")
    assert done["tasks"]["total"] == 2, "what does not lead to it is left out"
    assert done["tasks"]["reused"] == 2, "what is stored is not run again"
    assert (tmp_path / "out").read_text() == "bb\nbb\n"
    said = sureline(tmp_path, "catalog", "made", "nothing")
    assert said.code == 2 and "no run in this directory has made nothing" in said.err
