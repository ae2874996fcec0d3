"""Workflows in Python: tasks and calls, results by handle, reuse, failures, resuming."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_bench import PATIENCE_S, Bench, wait_until

from sureline import Handle, RunFailedError, Workflow
from sureline.workflow.mistakes import UserError, WorkflowError


def double(x: float) -> float:
    return 2 * x


def combine(*parts: Any, **named: Any) -> Any:
    return (parts, named)


@pytest.fixture(autouse=True)
def in_an_empty_directory(bench: Bench) -> None:
    """Every workflow here runs in the current directory."""


# -- results by handle ---------------------------------------------------------------------------


def test_calls_feed_calls() -> None:
    flow = Workflow("sums")
    parts = [flow.call(sum, range(k)) for k in range(10)]
    total = flow.call(sum, parts)
    results = flow.run()
    assert results[total] == sum(sum(range(k)) for k in range(10))
    assert [results[part] for part in parts] == [sum(range(k)) for k in range(10)]
    assert results.outcome.state == "succeeded"
    assert results.outcome.tasks.succeeded == 11
    assert results.run == results.outcome.run


def test_handles_inside_of_anything() -> None:
    flow = Workflow("nested")
    one, two = flow.call(double, 1), flow.call(double, x=10)
    both = flow.call(combine, [one, {"deep": (two, [one])}], "plain", key={"k": two}, none=None)
    results = flow.run()
    assert results[both] == (([2, {"deep": (20, [2])}], "plain"), {"key": {"k": 20}, "none": None})


def test_results_of_every_size_and_sort() -> None:
    flow = Workflow("sizes")
    nothing = flow.call(lambda: None)
    long = flow.call(lambda: "x" * 3_000_000)
    data = flow.call(lambda: bytes(range(256)) * 300)
    odd = flow.call(lambda: {"set": {1, 2}, "class": Path("a") / "b", "inf": float("inf")})
    length = flow.call(len, long)
    results = flow.run()
    assert results[nothing] is None
    assert results[long] == "x" * 3_000_000
    assert results[data] == bytes(range(256)) * 300
    assert results[odd] == {"set": {1, 2}, "class": Path("a/b"), "inf": float("inf")}
    assert results[length] == 3_000_000
    again = flow.run()
    assert again.outcome.tasks.reused == 5
    assert again[nothing] is None
    assert again[long] == "x" * 3_000_000
    assert sorted(os.listdir(".")) == [".sureline"], "results of calls are not the user's files"


def test_functions_of_all_sorts() -> None:
    factor = 3

    def closure(x: int) -> int:
        return factor * x

    class Adder:
        def __init__(self, by: int) -> None:
            self.by = by

        def add(self, x: int) -> int:
            return self.by + x

        def __call__(self, x: int) -> int:
            return self.by + x

    flow = Workflow("functions")
    handles = [
        flow.call(closure, 2),
        flow.call(lambda x: x + 1, 2),
        flow.call(Adder(5).add, 2),
        flow.call(Adder(6), 2),
        flow.call(double, 2),
        flow.call(max, [1, 7]),
        flow.call(str.upper, "a"),
    ]
    results = flow.run()
    assert [results[handle] for handle in handles] == [6, 3, 7, 8, 4, 7, "A"]


def test_tasks_and_calls_together() -> None:
    Path("in.txt").write_text("b\na\n")
    flow = Workflow("mixed")
    ordered = flow.task("sort", run="sort in.txt > out.txt", inputs="in.txt", outputs=["out.txt"])
    first = flow.task(
        "first",
        run="head -1 > $NAME",
        stdin="out.txt",
        outputs="first.txt",
        env={"NAME": "first.txt"},
        needs={"cores": 0.5, "memory": "10MB"},
        takes="1s .. 2s .. 3s",
        retries=1,
        timeout="1 min",
    )
    where = os.getcwd()
    read = flow.using(after=first).call(lambda: Path(where, "first.txt").read_text())
    results = flow.run()
    assert isinstance(first, Handle)
    assert results[read] == "a\n"
    assert results[ordered] == [Path(where, "out.txt").resolve()]
    assert results["first"][0].read_text() == "a\n"
    with pytest.raises(KeyError):
        results["nobody"]


def test_the_graph_can_be_looked_at() -> None:
    flow = Workflow("look")
    a = flow.call(double, 1)
    named = flow.using(name="mine", needs={"cores": 2, "licence": 1}, timeout=5).call(double, a)
    flow.task("c", run="true", after=[a, "mine"])
    graph = flow.graph()
    assert [task.name for task in graph.tasks] == ["double:0", "mine", "c"]
    assert named.task == "mine"
    assert graph.parents == [(), (0,), (0, 1)]
    mine = graph.tasks[1]
    assert (mine.needs.cores, mine.needs.tags, mine.timeout_s) == (2.0, (("licence", 1),), 5.0)
    assert mine.kind_name == "double"
    assert os.listdir(".") == [], "looking makes nothing"


def test_another_directory() -> None:
    os.mkdir("there")
    flow = Workflow("elsewhere")
    made = flow.task("a", run="echo x > a.txt", outputs="a.txt")
    value = flow.call(double, 4)
    results = flow.run("there")
    assert results[made] == [Path("there/a.txt").resolve()]
    assert results[value] == 8
    assert os.listdir(".") == ["there"]


# -- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_named_errors() -> None:
    flow = Workflow("bad")
    flow.task("a", run="x", inputs=["gone"], outputs=["../up"])
    flow.task("b", run="x", after="nobody", retries=-1)
    with pytest.raises(WorkflowError) as caught:
        flow.run()
    said = str(caught.value)
    for part in ("'gone'", "'../up' leaves", "'nobody', which is not a task", "-1 retries"):
        assert part in said
    assert len(caught.value.mistakes) == 4
    assert os.listdir(".") == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda f: f.task("a", run="x", takes="3s .. 1s .. 2s"), "a: .*out of order"),
        (lambda f: f.task("a", run="x", timeout="long"), "a: 'long' is not a duration"),
        (lambda f: f.task("a", run="x", needs={"memory": "lots"}), "a: 'lots' is not a size"),
        (lambda f: f.task("a", run="x", needs={"cores": "many"}), "a: .*many"),
        (lambda f: f.task("a", run="x", needs={"cores": 0}), "a: .*cores"),
        (lambda f: f.task("a", run="x", needs={"licence": 0}), "licence: 0 is not a count"),
        (lambda f: (f.task("a", run="x"), f.task("a", run="y")), "two tasks called 'a'"),
        (lambda f: f.call(double, f.task("a", run="x")), "'a' is not a call .* using\\(after="),
        (lambda f: f.call(double, Handle("other")), "'other' is not a call of this workflow"),
        (lambda f: f.run(memory="lots"), "'lots' is not a size"),
        (lambda f: f.run(retry_delay="soon"), "'soon' is not a duration"),
    ],
)
def test_mistakes_in_settings(make: Callable[[Workflow], object], says: str) -> None:
    flow = Workflow("bad")
    with pytest.raises(UserError, match=says):
        make(flow)
    assert os.listdir(".") == []


def test_needs_that_cannot_be_met() -> None:
    flow = Workflow("greedy")
    flow.using(needs={"cores": 8}).call(double, 1)
    with pytest.raises(WorkflowError, match="needs 8 cores; this machine has 1"):
        flow.run(cores=1)
    assert os.listdir(".") == []


# -- failures ------------------------------------------------------------------------------------


class ComplaintError(Exception):
    def __init__(self, what: str, number: int) -> None:
        super().__init__(what, number)
        self.number = number


def test_an_exception_comes_back_whole() -> None:
    def fails(x: int) -> None:
        raise ComplaintError("no good", x)

    flow = Workflow("failing")
    fine = flow.call(double, 4)
    bad = flow.call(fails, fine)
    never = flow.call(double, bad)
    with pytest.raises(RunFailedError, match=r"fails:0: ComplaintError: .*no good") as caught:
        flow.run()
    cause = caught.value.__cause__
    assert type(cause).__name__ == "ComplaintError"
    assert cause.args == ("no good", 8)
    assert cause.number == 8  # type: ignore[union-attr] # it is a ComplaintError
    assert "in fails" in str(cause.__cause__), "the remote traceback is shown"
    results = caught.value.results
    assert results[fine] == 8
    assert (results.outcome.tasks.failed, results.outcome.tasks.cancelled) == (1, 1)
    for handle in (bad, never):
        with pytest.raises(KeyError):
            results[handle]
    assert "sureline resume" in str(caught.value)


def test_a_failing_command_is_a_failed_run() -> None:
    flow = Workflow("failing")
    flow.task("bad", run="exit 5")
    with pytest.raises(RunFailedError, match="bad: exit code 5") as caught:
        flow.run()
    assert caught.value.__cause__ is None


def test_a_worker_that_dies_fails_its_call_alone() -> None:
    flow = Workflow("dying")
    flow.call(os._exit, 3)
    others = [flow.call(double, k) for k in range(4)]
    with pytest.raises(RunFailedError) as caught:
        flow.run()
    assert [caught.value.results[handle] for handle in others] == [0, 2, 4, 6]
    assert caught.value.results.outcome.tasks.failed == 1


def test_an_exception_that_cannot_travel() -> None:
    def fails() -> None:
        class OddError(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__("odd")

        raise OddError(1, 2)

    flow = Workflow("odd")
    flow.call(fails)
    with pytest.raises(RunFailedError, match="odd") as caught:
        flow.run()
    assert "odd" in str(caught.value.__cause__)


def test_a_result_that_cannot_travel_fails_its_call() -> None:
    flow = Workflow("odd")
    bad = flow.call(lambda: (k for k in range(3)))
    fine = flow.call(double, 1)
    with pytest.raises(RunFailedError, match="generator") as caught:
        flow.run()
    assert caught.value.results[fine] == 2
    with pytest.raises(KeyError):
        caught.value.results[bad]


def test_retries_and_timeouts_of_calls(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def flaky() -> int:
        with open(tries, "a") as stream:
            stream.write("try\n")
        if len(tries.read_text().split()) < 3:
            raise OSError("not yet")
        return 5

    def endless() -> None:
        import time

        while True:
            time.sleep(1)

    flow = Workflow("patient")
    result = flow.using(retries=3, name="flaky").call(flaky)
    flow.using(timeout=0.2, name="endless").call(endless)
    with pytest.raises(RunFailedError, match="endless") as caught:
        flow.run(retry_delay="10ms")
    assert caught.value.results[result] == 5
    assert tries.read_text().split() == ["try"] * 3


def test_environment_and_needs_of_calls() -> None:
    flow = Workflow("env")
    value = flow.using(env={"COLOUR": "red"}).call(os.getenv, "COLOUR")
    plain = flow.using(after=value).call(os.getenv, "COLOUR")
    one_at_a_time = [
        flow.using(needs={"cores": 0.1, "door": 1}).call(alone, os.path.abspath("door"), k)
        for k in range(4)
    ]
    results = flow.run(tags={"door": 1})
    assert (results[value], results[plain]) == ("red", None)
    assert [results[handle] for handle in one_at_a_time] == [0, 1, 2, 3]


def alone(path: str, number: int) -> int:
    """Fails if another call is inside at the same time."""
    import time

    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    time.sleep(0.02)
    os.unlink(path)
    return number


def test_stop_on_failure_and_watcher() -> None:
    from sureline.compose import Watcher

    class Noting(Watcher):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def submitted(self, run: str, graph: Any, notice: str | None, done: int) -> None:
            self.seen.append(f"{len(graph)} tasks")

        def event(self, event: Any) -> None:
            self.seen.append(type(event).__name__)

    def fails() -> None:
        raise ValueError

    flow = Workflow("stop")
    first = flow.call(fails)
    for _ in range(20):
        flow.using(after=[]).call(double, 1)
    watcher = Noting()
    with pytest.raises(RunFailedError) as caught:
        flow.run(stop_on_failure=True, cores=1, watcher=watcher)
    counts = caught.value.results.outcome.tasks
    assert counts.cancelled > 0
    assert counts.succeeded + counts.failed + counts.cancelled == counts.total == 21
    assert watcher.seen[0] == "21 tasks"
    assert {"TaskStarted", "TaskEnded", "RunEnded"} <= set(watcher.seen)
    with pytest.raises(KeyError):
        caught.value.results[first]


# -- notebooks -----------------------------------------------------------------------------------


def test_inside_a_running_loop() -> None:
    """As in a notebook, whose cells run inside an event loop."""

    async def cell() -> Any:
        flow = Workflow("cell")
        value = flow.call(double, 21)
        results = flow.run()
        return results[value]

    assert asyncio.run(cell()) == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_callers_signal_handlers_come_back(number: signal.Signals) -> None:
    def mine(*_: object) -> None:
        pass

    before = signal.signal(number, mine)
    try:
        flow = Workflow("polite")
        flow.call(double, 1)
        flow.run()
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, before)


def test_in_a_thread() -> None:
    found: list[Any] = []

    def work() -> None:
        flow = Workflow("thread")
        value = flow.call(double, 2)
        found.append(flow.run()[value])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [4]


def test_a_script_from_standard_input() -> None:
    """Its functions live in no file."""
    text = """\
from sureline import Workflow
def plus(x): return x + one
one = 1
flow = Workflow("typed")
value = flow.call(plus, flow.call(plus, 1))
print(flow.run()[value])
"""
    ended = subprocess.run(
        [sys.executable, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert ended.stdout == "3\n"


# -- reuse ---------------------------------------------------------------------------------------


def test_unchanged_calls_are_not_made_again(tmp_path: Path) -> None:
    made = tmp_path / "made"

    def noted(x: int) -> int:
        with open(made, "a") as stream:
            stream.write(f"{x}\n")
        return x

    def run(values: list[int], fresh: bool = False) -> int:
        flow = Workflow("noted")
        parts = [flow.call(noted, value) for value in values]
        total = flow.call(sum, parts)
        return int(flow.run(fresh=fresh)[total])

    assert run([1, 2]) == 3
    assert run([1, 2]) == 3
    assert run([1, 2, 4]) == 7
    assert sorted(made.read_text().split()) == ["1", "2", "4"]
    assert run([1], fresh=True) == 1
    assert sorted(made.read_text().split()) == ["1", "1", "2", "4"]


SCRIPT = """\
    import sys
    from sureline import Workflow
    from helping import helper

    FACTOR = 10

    def scale(x):
        return FACTOR * x

    def outer(x):
        open("made", "a").write("outer\\n")
        return scale(x) + helper(x)

    def other(x):
        open("made", "a").write("other\\n")
        return x

    if __name__ == "__main__":
        flow = Workflow("script")
        total = flow.call(max, [flow.call(outer, 1), flow.call(other, 2)])
        print(flow.run()[total])
    """
HELPING = "def helper(x):\n    return x\n"


@pytest.mark.parametrize(
    ("file", "before", "after", "made", "result"),
    [
        ("script.py", "", "", [], 11),
        ("script.py", "import sys\n", "import sys  # a comment\n\n\n", [], 11),
        ("script.py", "scale(x) + helper(x)", "scale(x) + helper(x) + 5", ["outer"], 16),
        ("script.py", "return FACTOR * x", "return FACTOR * x + 1", ["outer"], 12),
        ("script.py", "FACTOR = 10", "FACTOR = 20", ["outer"], 21),
        ("helping.py", "return x", "return x + 2", ["outer"], 13),
    ],
    ids=["nothing", "a comment", "its body", "its helper", "a global", "a module it uses"],
)
def test_reuse_in_another_process(
    bench: Bench, file: str, before: str, after: str, made: list[str], result: int
) -> None:
    """All code of the user's own counts; what does not matter does not."""
    bench.write({"script.py": SCRIPT, "helping.py": HELPING})
    assert script(bench) == "11\n"
    assert sorted(bench.text("made").split()) == ["other", "outer"]
    (bench.directory / "made").unlink()
    changed = bench.text(file).replace(before, after, 1)
    bench.write({file: changed})
    assert script(bench) == f"{result}\n"
    note = bench.directory / "made"
    assert (note.read_text().split() if note.exists() else []) == made


def script(bench: Bench) -> str:
    ended = subprocess.run(
        [sys.executable, "-B", "script.py"],
        cwd=bench.directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# -- resuming ------------------------------------------------------------------------------------


def test_resume_after_the_script_was_killed(bench: Bench) -> None:
    here = bench.directory
    bench.write(
        {
            "script.py": f"""\
            import os, time
            from sureline import Workflow

            def noted(k):
                with open("{here}/made", "a") as stream:
                    stream.write(f"{{k}}\\n")
                return k

            def gate(k):
                noted("gate")
                while not os.path.exists("{here}/open"):
                    time.sleep(0.02)
                return noted(k)

            flow = Workflow("killed")
            first = flow.call(noted, 1)
            second = flow.call(gate, first)
            flow.call(sum, [first, second])
            flow.run()
            """
        }
    )
    going = subprocess.Popen([sys.executable, "script.py"], cwd=here)
    try:
        wait_until(lambda: (here / "made").exists() and "gate" in bench.text("made"))
        wait_until(lambda: bench.states()["noted:0"] == "succeeded")
    finally:
        going.send_signal(signal.SIGKILL)
        going.wait()
    assert bench("show", "--json").json["state"] == "interrupted"
    again = bench.start("resume", "--json")
    wait_until(lambda: bench.text("made").count("gate") == 2, again)
    (here / "open").touch()
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert json.loads(out)["state"] == "succeeded"
    assert json.loads(out)["tasks"]["succeeded"] == 3
    made = bench.text("made").split()
    assert made == ["1", "gate", "gate", "1"], "no call that had ended; no orphan at the gate"
    assert bench("show", "last", "sum:0", "--json").json["state"] == "succeeded"


def test_a_call_that_had_ended_before_a_crash_is_not_made_again(bench: Bench) -> None:
    """The second call kills the engine, its parent, at its very start: the first had ended."""
    here = bench.directory
    bench.write(
        {
            "script.py": f"""\
            import os, signal
            from sureline import Workflow

            def first():
                with open("{here}/made", "a") as stream:
                    stream.write("first\\n")
                return 1

            def second(x):
                if not os.path.exists("{here}/killed"):
                    open("{here}/killed", "w").close()
                    os.kill(os.getppid(), signal.SIGKILL)
                return x

            flow = Workflow("killed")
            flow.call(second, flow.call(first))
            flow.run()
            """
        }
    )
    ended = subprocess.run([sys.executable, "script.py"], cwd=here, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert bench("resume").code == 0
    assert bench.text("made") == "first\n"


def test_a_flow_in_python_is_seen_by_the_commands(bench: Bench) -> None:
    def speaks() -> int:
        print("hello from a call")
        print("a worry", file=sys.stderr)
        return 1

    flow = Workflow("seen")
    flow.using(name="speaks").call(speaks)
    run = flow.run().run
    listed = bench("runs", "--json").json["runs"]
    assert [(one["run"], one["name"], one["source"]) for one in listed] == [(run, "seen", None)]
    logs = bench("logs", "last", "speaks", "--json").json
    assert (logs["stdout"], logs["stderr"]) == ("hello from a call\n", "a worry\n")


def test_paths_may_be_path_objects() -> None:
    Path("in.txt").write_text("x\n")
    flow = Workflow("paths")
    made = flow.task("a", run="cp in.txt out.txt", inputs=Path("in.txt"), outputs=[Path("out.txt")])
    assert flow.run()[made][0].read_text() == "x\n"


def test_the_documented_example_of_the_module() -> None:
    """The example at the head of `sureline.flow`, word for word, as a script."""
    import sureline.flow

    text = textwrap.dedent((sureline.flow.__doc__ or "").split("\n\n")[1])
    assert text.startswith("flow = Workflow(")
    ended = subprocess.run(
        [sys.executable, "-c", f"from sureline import Workflow\n{text}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert json.loads(ended.stdout) == 120


def test_a_traceback_and_the_call_are_everywhere(bench: Bench) -> None:
    def inner(x: int) -> None:
        raise ValueError(f"no {x}")

    def outer(x: int, words: list[str], key: object = None) -> None:
        inner(x)

    flow = Workflow("traced")
    flow.using(name="bad").call(outer, 7, ["a" * 500, "b"], key=object())
    with pytest.raises(RunFailedError):
        flow.run()
    asked = (("logs", "last", "bad"), ("story", "bad"), ("show", "last", "bad"), ("explain", "bad"))
    told = [answer.out + answer.err for answer in (bench(*words) for words in asked)]
    told.append(str(bench("show", "last", "bad", "--json").json["failures"][0]["trace"]))
    bench("report", "--output", "r.html")
    for text in told:
        assert "outer(7, ['aaaa" in text.replace(
            "test_a_traceback_and_the_call_are_everywhere.<locals>.", ""
        )
        assert "ValueError: no 7" in text
        assert "in inner" in text
        assert "slot_call.py" not in text, "our own frames say nothing"
        assert len(text) < 3000
    assert "in inner" in bench.text("r.html")
