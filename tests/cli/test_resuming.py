"""`resume` without a name: which run it takes, and what it says of a workflow that has changed."""

from __future__ import annotations

from cli_bench import Bench

GATED = """\
    tasks:
      first: {run: echo 1 > one, outputs: [one]}
      gate: {run: test -e $HERE/go, inputs: [one], env: {HERE: "{{here}}"}}
    params: {here: "."}
    """


def start(bench: Bench) -> str:
    """A run that fails at its gate."""
    bench.flow(GATED)
    return str(bench.run("--set", f"here={bench.directory}", code=1)["run"])


def test_the_newest_run_that_can_go_on(bench: Bench) -> None:
    failed = start(bench)
    bench.flow("tasks:\n  a: {run: 'true'}\n", name="other.yaml")
    assert bench("run", "other.yaml").code == 0
    bench.write({"go": ""})
    answer = bench("resume", "--json")
    assert (answer.code, answer.json["run"]) == (0, failed)
    answer = bench("resume")
    assert answer.code == 2
    assert "nothing to resume: all runs here have succeeded" in answer.err


def test_a_changed_workflow_is_told_of(bench: Bench) -> None:
    start(bench)
    assert "changed" not in bench("resume").err
    bench.flow(GATED + "# a comment\n")
    assert "changed" not in bench("resume").err, "it means the same"
    bench.flow(GATED.replace("echo 1", "echo 2"))
    answer = bench("resume")
    assert "note: w.yaml has changed since run" in answer.err
    assert "sureline run w.yaml" in answer.err
    assert bench.text("one") == "1\n", "the run goes on as it was"
    bench.flow("tasks: [")
    assert "has changed and cannot be read" in bench("resume").err
    (bench.directory / "w.yaml").unlink()
    assert "w.yaml is gone" in bench("resume").err
