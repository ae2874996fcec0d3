"""Calls of others on one machine: an interpreter of their own, in a sandbox."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from peer_bench import Bench, alive

from sureline.peer import careful, code
from sureline.peer.calls import Handle
from sureline.peer.confine import choosing
from sureline.peer.confine.rules import Kind, Rules
from sureline.peer.describing import Describer
from sureline.peer.jobs import CALL_DIRECTORY, MODULES, CommandJob, JobEnded, LoneCall
from sureline.peer.packed import buffers_of, bundled, mapped
from sureline.peer.slot_lone import Word
from sureline.workflow.files import FileRecord, result_path

BEST = choosing.choose(network=False).kind
KINDS = ["none", *(kind for kind in ("landlock", "full") if kind in (BEST, "landlock"))]
PYTHON = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def kind() -> str:
    return BEST


@pytest.fixture
def bench(tmp_path: Path, kind: Kind) -> Iterator[Bench]:
    home = tmp_path / "home"
    (home / ".sureline").mkdir(parents=True)
    (home / "secret").write_text("a secret")
    made = Bench(home, rules=Rules(kind, network=False))
    yield made
    made.close()


def made_of(bench: Bench, function: Callable[..., Any], *args: Any, **more: Any) -> CommandJob:
    """The job that a grid peer gets for a call, with its data in the store."""
    describer = Describer(bench.root)
    described = describer.describe(function, args, {}, lambda task: {})
    describer.store(bench.store)
    packed = describer.functions[described.call.function]
    inputs = [_stored(bench, packed), *more.pop("inputs", ())]
    inputs += [
        bench.store.ingest(bench.store.blob_path(one.digest), f"{CALL_DIRECTORY}/{one.digest}")
        for data in (packed, described.call.arguments)
        for one in buffers_of(data)
    ]
    env, label = more.pop("env", {}), more.pop("label", "r.0.1")
    call = LoneCall(inputs[0].digest, described.call.arguments, **{"python": PYTHON, **more})
    return CommandJob(label, "f:0", 1, "", tuple(inputs), env=env, call=call)


def _stored(bench: Bench, data: bytes) -> FileRecord:
    record = bench.store.put_pieces([data], "")
    return FileRecord(
        f"{CALL_DIRECTORY}/{record.digest}", record.digest, record.size, record.ctime_ns
    )


def value_of(bench: Bench, ended: JobEnded) -> Any:
    assert ended.outcome == "succeeded", (ended.reason, ended.stderr)
    if ended.result is not None:
        return careful.load(ended.result, (), lambda key: None)
    (file,) = ended.outputs
    assert file.path == result_path("f:0")
    return code.load(*bundled(mapped(bench.store.blob_path(file.digest))), lambda key: None)


@pytest.mark.parametrize("kind", KINDS if BEST != "none" else ["none"])
def test_a_call_is_made_with_its_arguments_and_inputs(bench: Bench) -> None:
    offset = 5

    def work(array: Any, k: int) -> tuple[float, str, list[str]]:
        print("said")
        return float(array.sum()) + k + offset, Path("in.txt").read_text(), os.listdir(".")

    (bench.directory / "in.txt").write_text("input")
    given = bench.store.ingest(str(bench.directory / "in.txt"), "in.txt")
    ended = bench.run(made_of(bench, work, np.ones(50_000), 1, inputs=[given]))
    total, text, there = value_of(bench, ended)
    assert (total, text) == (50_006.0, "input")
    assert sorted(there) == [CALL_DIRECTORY, "in.txt"]
    assert ended.stdout == "said\n"


def test_a_long_result_is_a_file_and_an_exception_comes_as_itself(bench: Bench) -> None:
    ended = bench.run(made_of(bench, np.arange, 100_000.0))
    assert ended.result is None
    assert np.array_equal(value_of(bench, ended), np.arange(100_000.0))
    ended = bench.run(made_of(bench, int, "x"))
    assert ended.outcome == "failed" and "invalid literal" in ended.reason
    assert ended.error is not None
    assert isinstance(careful.load_error(ended.error, lambda key: None), ValueError)


UNFIT = {
    "python": ({"python": "3.2"}, "has Python"),
    "another version": ({"packages": {"numpy": "0.1"}}, "has numpy "),
    "no package": ({"packages": {"nosuch": "0.1"}}, "has no nosuch"),
    "no environment": ({"env": {"VIRTUAL_ENV": "/usr/nosuch"}}, "no Python environment"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_machine_that_does_not_fit_says_so_before_it_loads_anything(
    bench: Bench, case: str
) -> None:
    more, words = UNFIT[case]
    ended = bench.run(made_of(bench, abs, -1, **more))
    assert ended.outcome == "failed" and ended.fault == "unfit"
    assert words in ended.reason


def test_an_environment_without_sureline_does_not_fit(bench: Bench) -> None:
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("the system has no Python of its own")
    (bench.directory / "in.txt").write_text("")
    ended = bench.run(made_of(bench, abs, -1, env={"VIRTUAL_ENV": "/usr"}, python=""))
    if ended.outcome == "succeeded":
        pytest.skip("the system's Python has Sureline")
    assert ended.fault == "unfit", ended


@pytest.mark.parametrize("way", ["open", "glob"])
def test_a_call_that_looks_for_what_it_did_not_name_fails_saying_so(bench: Bench, way: str) -> None:
    def look(path: str) -> object:
        import glob

        if way == "glob":
            return glob.glob(f"{path}/*")
        try:
            with open(path) as file:
                return file.read()
        except OSError:
            return "none"

    ended = bench.run(made_of(bench, look, "data/x.csv", beside=("data/",)))
    assert ended.outcome == "failed"
    assert "data/x.csv" in ended.reason and "inputs=" in ended.reason
    ended = bench.run(made_of(bench, look, "/u/dir/data/x", beside=("data/",), directory="/u/dir"))
    assert ended.outcome == "failed" and "data/x" in ended.reason
    # what is not there at home either may be looked for
    assert value_of(bench, bench.run(made_of(bench, look, "cache", beside=("data/",)))) in (
        "none",
        [],
    )


@pytest.mark.parametrize("what", ["nothing", "link", "pipe", "rubbish", "directory", "end"])
def test_a_call_that_lies_about_its_end_has_failed(bench: Bench, what: str) -> None:
    def leave(path: str, word: bytes) -> None:
        if what == "link":
            os.symlink(path, ".sureline-call/word")
        elif what == "pipe":
            os.mkfifo(".sureline-call/word")
        elif what == "rubbish":
            Path(".sureline-call/word").write_bytes(b"\xc1" * 100)
        elif what == "directory":
            os.rename(".sureline-call", "was")
            os.symlink(path, ".sureline-call")
        elif what == "end":  # a word that nobody gave over the line
            Path(".sureline-call/word").write_bytes(word)
            os._exit(0)
        for fd in range(3, 20):  # its line is one of these
            with contextlib.suppress(OSError), socket.socket(fileno=fd) as line:
                line.send(b"a")
        os._exit(0)

    word = msgspec.msgpack.encode(Word("succeeded", result=b"N."))
    (bench.directory / "word").write_bytes(word)
    path = bench.directory if what == "directory" else bench.directory / "word"
    ended = bench.run(made_of(bench, leave, str(path), word))
    assert ended.outcome == "failed" and not ended.fault
    assert "left no word" in ended.reason


def test_a_long_order_and_a_long_word_arrive(bench: Bench) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    text = "x" * 200_000
    ended = bench.run(made_of(bench, len, text))
    assert value_of(bench, ended) == len(text)
    ended = bench.run(made_of(bench, fail, text))
    assert ended.error is not None
    assert careful.load_error(ended.error, lambda key: None).args == (text,)
    assert value_of(bench, bench.run(made_of(bench, len, "short"))) == 5


def test_a_call_cannot_write_to_the_store_or_read_what_is_not_its_own(bench: Bench) -> None:
    if bench._rules is None or bench._rules.kind == "none":
        pytest.skip("nothing binds it here")

    def attack(home: str) -> list[str]:
        done = []
        for path in (f"{home}/secret", f"{home}/.sureline/blobs"):
            try:
                os.listdir(path) if os.path.isdir(path) else open(path).close()
                done.append(path)
            except OSError:
                pass
        try:
            Path(f"{home}/.sureline/blobs/forged").write_text("x")
            done.append("wrote")
        except OSError:
            pass
        return done

    ended = bench.run(made_of(bench, attack, str(bench.directory)))
    assert value_of(bench, ended) == []


# -- an interpreter that is kept ------------------------------------------------------------------


def pid_of(bench: Bench, label: str = "r.0.1", **more: Any) -> int:
    """Which process makes a call of this run."""
    return int(value_of(bench, bench.run(made_of(bench, os.getpid, label=label, **more))))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_next_call_of_a_run_finds_its_code_loaded(bench: Bench) -> None:
    def count(seen: list[int] = []) -> tuple[int, str, str | None, list[str]]:  # noqa: B006 - kept
        seen.append(1)
        left = os.environ.pop("SURELINE_TASK"), os.environ.get("LEFT"), sorted(os.listdir("."))
        os.environ["LEFT"] = "x"
        Path("left").write_text("x")
        os.chdir("/")
        return len(seen), *left

    job = made_of(bench, count)
    clean = ("f:0", None, [CALL_DIRECTORY])
    assert value_of(bench, bench.run(job)) == (1, *clean)
    assert value_of(bench, bench.run(job)) == (2, *clean)


def test_an_interpreter_stands_still_between_calls_and_serves_one_run(bench: Bench) -> None:
    first = pid_of(bench)
    bench.until(lambda: state_of(first) == "T")
    assert pid_of(bench, "r.1.1") == first
    bench.run(CommandJob("r.2.1", "t", 1, "true"))
    assert pid_of(bench, "r.3.1") == first
    second = pid_of(bench, "other.0.1")
    assert second != first and not alive(first)
    bench.run(CommandJob("r.4.1", "t", 1, "true"))
    assert not alive(second)


def test_an_interpreter_that_read_more_than_data_is_not_used_again(bench: Bench) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, ("import builtins; builtins.print = lambda *a, **k: None",)

    def said(value: object) -> int:
        print("said")
        return os.getpid()

    def used(value: object) -> JobEnded:
        describer = Describer(bench.root)
        described = describer.describe(said, (Handle("f:1"),), {}, lambda task: {})
        packed = _stored(bench, describer.functions[described.call.function])
        results = {"f:1": pickle.dumps(value)}
        call = LoneCall(packed.digest, described.call.arguments, results, python=PYTHON)
        return bench.run(CommandJob("r.0.1", "f:0", 1, "", (packed,), call=call))

    harmless = used({"numbers": [1, 2]})
    assert value_of(bench, used([3])) == value_of(bench, harmless)
    assert used(Evil()).stdout == ""
    after = used([4])
    assert after.stdout == "said\n"
    assert value_of(bench, after) != value_of(bench, harmless)


def test_what_a_call_leaves_running_ends_with_it(bench: Bench) -> None:
    def leave() -> tuple[int, int]:
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        return os.getpid(), child.pid

    first, child = value_of(bench, bench.run(made_of(bench, leave)))
    assert not alive(child)
    assert pid_of(bench) != first


def test_an_interpreter_that_died_while_it_was_kept_is_replaced(bench: Bench) -> None:
    first = pid_of(bench)
    os.kill(first, signal.SIGKILL)
    bench.until(lambda: not alive(first))
    second = pid_of(bench)
    assert second != first

    def vanish() -> None:
        os._exit(3)

    ended = bench.run(made_of(bench, vanish))
    assert (ended.outcome, ended.exit_code) == ("failed", 3)
    assert pid_of(bench) not in (first, second)


def test_a_call_with_much_to_say_is_heard_and_so_is_the_next(bench: Bench) -> None:
    ended = bench.run(made_of(bench, print, "x" * 10_000))
    assert ended.stdout_file is not None and ended.stdout.endswith("x\n")
    assert bench.run(made_of(bench, print, "next")).stdout == "next\n"


def test_nothing_is_left_of_an_interpreter_whose_slot_is_killed(bench: Bench) -> None:
    pid = pid_of(bench)
    slot = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(slot, signal.SIGKILL)
    bench.until(lambda: not alive(pid))


def test_a_call_that_takes_too_long_is_stopped_and_the_next_is_made(bench: Bench) -> None:
    job = made_of(bench, time.sleep, 60)
    ended = bench.run(msgspec.structs.replace(job, timeout_s=0.5))
    assert ended.outcome == "timeout"
    assert pid_of(bench)


def test_an_interpreter_that_nobody_asks_for_goes_after_a_while(bench: Bench) -> None:
    pid = pid_of(bench)
    bench.until(lambda: not alive(pid))
    assert pid_of(bench) != pid


# -- what stays in the directory for the next call ------------------------------------------------


def module(bench: Bench, name: str, text: str) -> FileRecord:
    (bench.directory / f"{name}.py").write_text(text)
    path = f"{MODULES}/{name}.py"
    return bench.store.ingest(str(bench.directory / f"{name}.py"), path)


def test_modules_stay_as_they_are_whatever_a_call_leaves_among_them(bench: Bench) -> None:
    def use(name: str, harm: str) -> tuple[str, list[str], list[str]]:
        import importlib

        found = str(importlib.import_module(name).VALUE)
        there = sorted(os.listdir(MODULES)), sorted(os.listdir(CALL_DIRECTORY))
        if harm == "add":
            Path(MODULES, "added.py").write_text("")
            Path(CALL_DIRECTORY, "added").write_text("")
        elif harm == "replace":
            os.unlink(f"{MODULES}/second.py")
            Path(MODULES, "second.py").write_text("VALUE = 'false'")
        elif harm == "swap":
            os.rename(MODULES, "elsewhere")
            os.symlink("/", MODULES)
        return found, *there

    both = [module(bench, "first", "VALUE = 1"), module(bench, "second", "VALUE = 2")]
    for name, harm in [("first", "add"), ("first", "replace"), ("first", "swap"), ("second", "")]:
        job = made_of(bench, use, name, harm, inputs=both)
        value, modules, calls = value_of(bench, bench.run(job))
        assert value == ("2" if name == "second" else "1")
        assert modules == ["first.py", "second.py"]
        assert [one for one in calls if len(one) < 64] == ["modules"]
    assert bench.run(CommandJob("r.9.1", "t", 1, "ls -A")).stdout == ""


def test_names_of_files_that_did_not_come_are_new_for_each_call(bench: Bench) -> None:
    def look() -> list[tuple[str, int]]:
        found = [(oct(os.stat(name).st_mode & 0o777), os.path.getsize(name)) for name in names]
        assert not os.path.exists("data/left") and not os.path.exists("left")
        for path in ("data/left", "left", "a.csv"):
            with open(path, "w") as file:
                file.write("x")
        os.unlink("b.csv")
        os.mkdir("b.csv")
        return [*found[:2], (found[2][0], 0)]

    names = ("a.csv", "b.csv", "data")
    beside: dict[str, Any] = {"beside": ("a.csv", "b.csv", "data/")}
    first = pid_of(bench, **beside)
    for _ in range(3):
        found = value_of(bench, bench.run(made_of(bench, look, **beside)))
        assert found == [("0o200", 0), ("0o200", 0), ("0o300", 0)]
    assert pid_of(bench, **beside) == first

    def read() -> str:
        return Path("a.csv").read_text()

    (bench.directory / "a.csv").write_text("came")
    came = bench.store.ingest(str(bench.directory / "a.csv"), "a.csv")
    assert value_of(bench, bench.run(made_of(bench, read, inputs=[came], **beside))) == "came"
    assert "a.csv" in bench.run(made_of(bench, read, **beside)).reason
    with pytest.raises(AssertionError, match="No such file"):
        value_of(bench, bench.run(made_of(bench, read)))
    assert bench.run(CommandJob("r.9.1", "t", 1, "ls -A")).stdout == ""
