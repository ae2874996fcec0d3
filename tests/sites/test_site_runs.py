"""Runs at sites of the catalog, by the real command: what is staged, run, found, registered."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from surely import HOME, started, sureline, until, write

from sureline.catalog.entries import SiteEntry, Transformation, site_catalog, transformation_catalog
from sureline.catalog.replicas import Replicas
from sureline.sites import task_at_site
from sureline.sites.local import LocalSite
from sureline.sites.port import SiteWork

PIPES = """\
name: pipes
tasks:
  a:
    for: {i: 0..5}
    run: |
      echo a{{i}} >> $LOG
      cat in > a.{{i}}; echo {{i}} >> a.{{i}}
    env: {LOG: "%(log)s"}
    inputs: in
    outputs: "a.{{i}}"
  b:
    for: {i: 0..5}
    run: cat a.{{i}} in > b/x.{{i}}
    inputs: ["a.{{i}}", in]
    outputs: "b/x.{{i}}"
  c: {run: "cat b/* > c; mkdir d; cp c d/; echo done; chmod +x c", inputs: "b/*", outputs: [c, d]}
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))


@pytest.fixture
def work(tmp_path):
    where = tmp_path / "work"
    where.mkdir()
    (where / "in").write_text("given\n")
    write(where, "flow.yaml", PIPES % {"log": tmp_path / "ran.log"})
    return where


def lab(*names: str, processors: float = 2.0, **more) -> None:
    for name in names:
        site_catalog().add(SiteEntry(name, "local", processors, **more))


def sites(where: Path) -> dict[str, dict]:
    said = sureline(where, "sites", "--json")
    return {one["site"]: one for one in said.json["sites"]}


def test_a_workflow_over_two_sites(work, tmp_path):
    lab("one", "two")
    said = sureline(work, "run", "flow.yaml", "--sites", "all")
    assert said.code == 0, said
    lines = [line for i in range(6) for line in ("given", str(i), "given")]
    assert (work / "c").read_text().splitlines() == lines
    assert (work / "d" / "c").read_text() == (work / "c").read_text()
    assert os.access(work / "c", os.X_OK)
    counted = sites(work)
    assert sum(one["ended"] for one in counted.values()) == 13
    assert all(one["ended"] for one in counted.values()), "both get some"
    # `in` goes to each site once; what was made there is there already
    assert counted["one"]["staged_files"] + counted["two"]["staged_files"] < 2 + 6 + 6
    assert sum(one["present_files"] for one in counted.values()) > 6
    for name in ("one", "two"):
        left = set(os.listdir(tmp_path / "home" / "sites" / name))
        assert left <= {".slots"}, "nothing is left at a site"
    assert not list((work / HOME / "sites").glob("*/*"))
    made = {row.logical: row for row in Replicas().all()}
    assert made["c"].path == str(work / "c") and made["c"].task == "c" and made["c"].key
    assert sureline(work, "logs", "last", "c").out == "done\n"


def test_what_is_registered_is_not_run_again_in_another_directory(work, tmp_path):
    lab("one")
    assert sureline(work, "run", "flow.yaml", "--sites", "one").code == 0
    ran = (tmp_path / "ran.log").read_text()
    other = tmp_path / "other"
    other.mkdir()
    for name in ("in", "flow.yaml"):
        (other / name).write_text((work / name).read_text())
    (work / "b" / "x.3").unlink()
    said = sureline(other, "run", "flow.yaml", "--sites", "one", "--json")
    assert said.code == 0, said
    # the task with a directory among its outputs is made anew, as is what lost its file
    assert said.json["tasks"]["reused"] == 11 and said.json["tasks"]["succeeded"] == 2
    assert (tmp_path / "ran.log").read_text() == ran
    assert (other / "c").read_text() == (work / "c").read_text()
    (work / "a.0").write_text("something else")
    (tmp_path / "third").mkdir()
    for name in ("in", "flow.yaml"):
        (tmp_path / "third" / name).write_text((work / name).read_text())
    assert sureline(tmp_path / "third", "run", "flow.yaml", "--sites", "one").code == 0
    assert (tmp_path / "third" / "a.0").read_text() == "given\n0\n", "a changed file is no replica"


def test_a_failing_task_is_the_tasks_fault_and_says_why(work):
    lab("one")
    write(
        work,
        "bad.yaml",
        "tasks:\n  bad: {run: echo sorry >&2; exit 7}\n  no: {run: 'true', outputs: x}\n",
    )
    said = sureline(work, "run", "bad.yaml", "--sites", "one")
    assert said.code == 1 and "exit code 7" in said.err and "did not make its output x" in said.err
    assert sureline(work, "logs", "last", "bad").err.startswith("sorry\n")


def test_programs_are_looked_for_where_they_are(work, tmp_path):
    lab("one", "two")
    tool = write(tmp_path, "tool.sh", "#!/bin/sh\necho tool of $SURELINE_SITE\n")
    tool.chmod(0o755)
    transformation_catalog().add(Transformation("mytool", {"two": {"path": str(tool)}}))
    write(
        work, "t.yaml", "tasks: {t: {for: {i: 0..3}, run: 'mytool > o.{{i}}', outputs: 'o.{{i}}'}}"
    )
    assert sureline(work, "run", "t.yaml", "--sites", "all").code == 0
    assert {(work / f"o.{i}").read_text() for i in range(4)} == {"tool of two\n"}
    (work / "o.1").unlink()
    shutil.rmtree(work / HOME / "blobs")
    assert sureline(work, "catalog", "made", "o.1", "--again").code == 0
    assert (work / "o.1").read_text() == "tool of two\n", "made again where it was made"
    said = sureline(work, "run", "t.yaml", "--sites", "one", "--fresh")
    assert said.code == 2 and "none of the sites one has what t:0 needs (mytool" in said.err


def test_a_replica_at_the_site_is_used_where_it_lies(work, tmp_path):
    lab("one")
    (tmp_path / "there").write_text("given\n")
    said = sureline(work, "catalog", "replicas", "add", "in", f"one:{tmp_path / 'there'}")
    assert said.code == 0, said
    write(work, "r.yaml", "tasks: {t: {run: 'readlink in > o', inputs: in, outputs: o}}")
    assert sureline(work, "run", "r.yaml", "--sites", "one").code == 0
    assert (work / "o").read_text().strip() == str(tmp_path / "there")


ELSEWHERE = "tasks: {t: {run: 'cat in > o', inputs: in, outputs: o}}"


def elsewhere(work: Path, place: str) -> None:
    """`in` is not in the directory any more, only there."""
    (work / "in").unlink()
    said = sureline(work, "catalog", "replicas", "add", "in", place)
    assert said.code == 0, said
    write(work, "e.yaml", ELSEWHERE)


def test_an_input_that_is_only_elsewhere_is_fetched(work, tmp_path):
    lab("one", "two")
    (tmp_path / "there").write_text("at one\n")
    elsewhere(work, f"one:{tmp_path / 'there'}")
    said = sureline(work, "run", "e.yaml", "--sites", "two")
    assert said.code == 0 and f"in is not here; one:{tmp_path / 'there'} is taken" in said.err, said
    assert (work / "o").read_text() == "at one\n"
    assert not (work / "in").exists() and sites(work)["two"]["staged_files"] == 1


@pytest.mark.parametrize("at", ["one", "two"])
def test_a_copy_that_has_changed_is_not_used(work, tmp_path, at):
    """Neither where it lies nor for another site."""
    lab("one", "two")
    (tmp_path / "there").write_text("at one\n")
    elsewhere(work, f"one:{tmp_path / 'there'}")
    (tmp_path / "there").write_text("another")
    said = sureline(work, "run", "e.yaml", "--sites", at)
    assert said.code == 1 and "is not what it was" in said.err, said
    assert not (work / "o").exists()


def test_a_copy_that_has_changed_is_brought_anew_from_where_it_is_whole(work, tmp_path):
    lab("one", "two")
    for name in ("there", "too"):
        (tmp_path / name).write_text("as it was\n")
    elsewhere(work, f"one:{tmp_path / 'there'}")
    assert sureline(work, "catalog", "replicas", "add", "in", f"two:{tmp_path / 'too'}").code == 0
    (tmp_path / "there").write_text("another")
    assert sureline(work, "run", "e.yaml", "--sites", "one").code == 0
    assert (work / "o").read_text() == "as it was\n"


def test_a_name_of_several_contents_is_nobodys_guess(work, tmp_path):
    lab("one")
    (tmp_path / "there").write_text("at one\n")
    (tmp_path / "too").write_text("another")
    elsewhere(work, f"one:{tmp_path / 'there'}")
    assert sureline(work, "catalog", "replicas", "add", "in", str(tmp_path / "too")).code == 0
    said = sureline(work, "run", "e.yaml", "--sites", "one")
    assert said.code == 2 and "several contents of that name are registered" in said.err


def test_files_go_from_a_site_by_ssh_to_another(work, tmp_path, sshd):
    lab("one")
    settings = {"config": str(sshd.directory / "client.conf")}
    far = SiteEntry("far", "ssh", 1.0, 0, str(tmp_path / "far"), "lab", settings=settings)
    site_catalog().add(far)
    (tmp_path / "there").write_text("far away\n")
    elsewhere(work, f"far:{tmp_path / 'there'}")
    for site in ("one", "far"):
        assert sureline(work, "run", "e.yaml", "--sites", site, "--fresh").code == 0
        assert (work / "o").read_text() == "far away\n"
    assert sites(work)["far"]["staged_files"] == 0, "it is there"


def test_memory_is_asked_of_the_engine(work, slurm):
    site_catalog().add(SiteEntry("cluster", "slurm", 2.0))
    run = "squeue -h -j $SLURM_JOB_ID -o %m > o"
    write(work, "m.yaml", f"tasks: {{t: {{run: '{run}', needs: {{memory: 123MiB}}, outputs: o}}}}")
    said = sureline(work, "run", "m.yaml", "--sites", "cluster")
    assert said.code == 0 and (work / "o").read_text() == "123M\n", said


def test_what_earlier_runs_have_seen_counts_if_it_is_wanted(work):
    """One site has failed everything before; who looks back sends it one task at most."""
    lab("bad", "good", processors=8.0)
    flow = "tasks: {t: {for: {i: 0..5}, run: '[ $SURELINE_SITE = good ]', retries: 9}}"
    write(work, "h.yaml", flow)
    settings = ("--sites", "all", "--with", "selector=opportunistic")
    sent = []
    for more in ((), ("--with", "earlier=1")):
        said = sureline(work, "run", "h.yaml", *settings, "--fresh", *more)
        assert said.code == 0, said
        sent.append(sites(work)["bad"]["submitted"] if "bad" in sites(work) else 0)
    assert sent[0] >= 3 and sent[1] <= 1


def test_what_no_strategy_looks_at_is_told(work):
    lab("one")
    write(work, "w.yaml", "tasks: {t: {run: 'true', requires: site != \"attic\"}}")
    said = sureline(work, "run", "w.yaml", "--sites", "one")
    assert said.code == 2 and "which the strategy opportunistic does not look at" in said.err
    said = sureline(work, "run", "w.yaml")
    assert said.code == 0 and "which the strategy embedded does not look at" in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sites", "nowhere"), "there is no site nowhere"),
        (("--sites", "one", "--grid", "g"), "two places"),
        (("--sites", "one", "--strategy", "embedded"), "cannot place tasks at sites"),
        (("--sites", "one", "--strategy", "peercomp"), "cannot place tasks at sites"),
        (("--sites", "one", "--selector", "bset"), "there is no selector 'bset'"),
        (("--sites", "one", "--selector", "./mine"), "no program that can be run"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(work, arguments, said):
    lab("one")
    answer = sureline(work, "run", "flow.yaml", *arguments)
    assert answer.code == 2 and said in answer.err


@pytest.mark.parametrize("engine", ["dask", pytest.param("ray", marks=pytest.mark.soak)])
def test_a_cluster_of_the_runs_own(work, tmp_path, engine):
    pytest.importorskip(engine, reason="an extra")
    site_catalog().add(SiteEntry("own", engine, 2.0))
    with started(work, "run", "flow.yaml", "--sites", "own", cold=True) as run:
        said = run.end()
    assert said.code == 0 and "Traceback" not in said.err, said
    assert sites(work)["own"]["ended"] == 13
    assert os.listdir(tmp_path / "home" / "sites" / "own") == ["at_site.py"]


@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_an_extra_that_is_not_installed_is_told_before_anything_runs(
    work, tmp_path, engine, package
):
    write(tmp_path / "broken" / package, "__init__.py", "raise ImportError('not here')")
    site_catalog().add(SiteEntry("it", engine, 1.0))
    env = {"PYTHONPATH": str(tmp_path / "broken")}
    said = sureline(work, "run", "flow.yaml", "--sites", "it", env=env)
    assert (
        said.code == 2 and f"{engine} is not installed; pip install sureline[{engine}]" in said.err
    )
    assert "Traceback" not in said.err and not (work / HOME).exists()
    said = sureline(work, "catalog", "sites", "check", env=env)
    assert said.code == 1 and f"pip install sureline[{engine}]" in said.out


MINE = """#!/bin/sh
cat > question.$$
printf 'thinking\\nSOLUTION:%s\\n' "${CHOICE:-two}"
"""


def test_a_program_of_the_users_chooses(work):
    lab("one", "two")
    mine = write(work, "mine", MINE)
    mine.chmod(0o755)
    said = sureline(work, "run", "flow.yaml", "--sites", "all", "--selector", "./mine")
    assert said.code == 0, said
    assert sites(work)["two"]["ended"] == 13
    question = next(work.glob("question.*")).read_text().splitlines()
    assert question[0].startswith("run=pipes-") and "task=" in question[1]
    assert any(line.startswith("site=one processors=2 ") for line in question)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho SOLUTION:mars\n", "it named 'mars', which is no choice"),
        ("#!/bin/sh\nexec sleep 60\n", "did not answer within 0.2 s"),
    ],
)
def test_a_selector_that_fails_is_told_of_and_replaced(work, script, told):
    lab("one", "two")
    write(work, "mine", script).chmod(0o755)
    flags = ("--sites", "all", "--selector", "./mine", "--with", "selector_s=0.2")
    said = sureline(work, "run", "flow.yaml", *flags)
    assert said.code == 0, said
    assert told in said.err and "the ratio chooses instead" in said.err
    assert "asked no more" in said.err


SLOW = """\
tasks:
  s:
    for: {i: 0..7}
    run: echo s{{i}} >> $LOG; sleep 0.7; echo {{i}} > s.{{i}}
    env: {LOG: "%(log)s"}
    outputs: "s.{{i}}"
  all: {run: cat s.* > all, inputs: "s.*", outputs: all}
"""


def killed_and_resumed(work: Path, log: Path, kills: list[float], *flags: str) -> None:
    """Run, kill the submitter at these shares of the work, and resume it each time."""
    words = ["run", "slow.yaml", *flags]
    for share in kills:
        with started(work, *words) as run:
            until(lambda run=run, share=share: run.over() or _ran(log) >= share * 8)
            run.kill()
        words = ["resume", "last"]
    said = sureline(work, *words)
    assert said.code == 0, said
    assert (work / "all").read_text() == "".join(f"{i}\n" for i in range(8))


def _ran(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_killed_submitter_finds_its_jobs_and_submits_none_again(work, tmp_path):
    lab("one", "two")
    write(work, "slow.yaml", SLOW % {"log": tmp_path / "slow.log"})
    killed_and_resumed(work, tmp_path / "slow.log", [0.2, 0.6], "--sites", "all")
    ran = sorted((tmp_path / "slow.log").read_text().split())
    assert ran == sorted(f"s{i}" for i in range(8)), "nothing was run twice"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_submitter_killed_at_random_instants(work, tmp_path, seed):
    draw = random.Random(seed)
    lab("one", "two")
    write(work, "slow.yaml", SLOW % {"log": tmp_path / "slow.log"})
    kills = sorted(draw.random() for _ in range(2))
    killed_and_resumed(work, tmp_path / "slow.log", kills, "--sites", "all")
    ran = sorted((tmp_path / "slow.log").read_text().split())
    assert ran == sorted(f"s{i}" for i in range(8)), f"seed {seed}: run twice or never"


BROKEN = """\
tasks:
  t:
    for: {i: 0..9}
    run: |
      if [ $SURELINE_SITE = bad ]; then kill -9 $PPID; sleep 60; fi
      echo {{i}} > o.{{i}}
    outputs: "o.{{i}}"
"""


def test_what_the_site_fails_at_uses_up_no_retries(work):
    """At one site, what the engine has started is killed each time: no fault of the tasks'."""
    lab("bad", processors=4.0)
    lab("good")
    write(work, "broken.yaml", BROKEN)
    said = sureline(work, "run", "broken.yaml", "--sites", "all", "--json")
    assert said.code == 0 and said.json["tasks"]["succeeded"] == 10, said
    counted = sites(work)
    assert counted["good"]["ended"] == 10 and counted["bad"]["ended"] == 0
    assert 0 < counted["bad"]["failed"] < 10, "it is left alone before long"


def test_a_task_that_is_stopped_goes_in_order(tmp_path):
    """It is asked, ends, and its report is written: nobody has to kill what waits for it."""
    site = LocalSite(tmp_path)
    task = {
        "argv": ["sh", "-c", "echo up; exec sleep 600"],
        "script": "",
        "inputs": [],
        "outputs": [],
        "env": {},
        "stdin": None,
        "timeout_s": None,
        "seen": "",
    }
    write(tmp_path / "t", "tasks.json", msgspec.json.encode([task]).decode())
    site.put(Path(task_at_site.__file__), "t/task_at_site.py")
    (job,) = site.submit(SiteWork(tag="t", argv=("python3", "task_at_site.py")))
    out = tmp_path / "t" / "stdout.0"
    until(lambda: out.exists() and out.read_text() == "up\n")
    site.cancel([job])
    until(lambda: site.look([job])[job].is_over)
    status = site.look([job])[job]
    assert (status.word, status.exit_code) == ("cancelled", 0)
    assert msgspec.json.decode((tmp_path / "t" / "report.0").read_bytes())["signal"] == 15


PREEMPTED = """\
tasks:
  t:
    run: |
      echo began >> {log}
      [ $(wc -l < {log}) -gt 1 ] || sleep 600
      echo done > o
    outputs: o
"""


@pytest.mark.soak
def test_a_job_that_gives_way_to_others_uses_up_no_retries(work, tmp_path, slurm):
    """Slurm ends it for a job of a partition that is more important; it has no retries at all."""
    site_catalog().add(SiteEntry("spare", "slurm", 1.0, settings={"partition": "doomed"}))
    log = tmp_path / "began.log"
    write(work, "p.yaml", PREEMPTED.format(log=log))
    with started(work, "run", "p.yaml", "--sites", "spare") as run:
        until(lambda: _ran(log) == 1)
        slurm.submit("sleep 1", "--nodes=2", "--exclusive")
        said = run.end()
    assert said.code == 0 and (work / "o").read_text() == "done\n", said
    assert _ran(log) == 2 and "preempted" in said.err
