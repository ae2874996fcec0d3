"""Tasks of others that try to leave their place: on real slot processes, in every kind of sandbox
that this machine can give."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peer_bench import Bench, alive

from sureline.peer.confine import choosing, landlock
from sureline.peer.confine.rules import Rules, clean_environment, outermost
from sureline.peer.jobs import CommandJob, JobEnded

BEST = choosing.choose(network=False).kind
KINDS = [kind for kind in ("landlock", "full") if kind in (BEST, "landlock")]

pytestmark = pytest.mark.skipif(BEST == "none", reason="this kernel has neither way")


def command(run: str, label: str = "0.1", **more: object) -> CommandJob:
    return CommandJob(label, "t", 1, run, **more)  # type: ignore[arg-type]  # fields by name


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(tmp_path: Path, kind: str) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make_bench(**rules: object) -> Bench:
        home = tmp_path / "home"
        (home / ".sureline").mkdir(parents=True, exist_ok=True)
        (home / "peer.pem").write_text("my key\n")
        bench = Bench(home, rules=Rules(kind, **{"network": False, **rules}))  # type: ignore[arg-type]
        made.append(bench)
        return bench

    yield make_bench
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def test_an_honest_task_notices_nothing(bench: Bench, tmp_path: Path) -> None:
    (bench.directory / "in").write_text("in\n")
    given = bench.store.ingest(str(bench.directory / "in"), "in")
    run = (
        "cat in > out; ls /usr > /dev/null; echo said; echo erred > /dev/stderr; mktemp > /dev/null"
    )
    ended = bench.run(command(run, inputs=(given,), outputs=("out",)))
    assert (ended.outcome, ended.reason) == ("succeeded", ""), ended
    assert (ended.stdout, ended.stderr) == ("said\n", "erred\n")
    assert bench.store.read(ended.outputs[0]) == b"in\n"
    script = "import tempfile, difflib, json; tempfile.TemporaryFile().write(b'x'); print('fine')"
    assert bench.run(command(f'python3 -c "{script}"', "1.1")).stdout == "fine\n"
    again = bench.run(command("ls -A; ls -A $TMPDIR; echo 1/2 > $SURELINE_PROGRESS", "2.1"))
    assert again.stdout == "", "nothing is left of the others"


@pytest.mark.parametrize(
    "attack",
    [
        "cat {home}/peer.pem",
        "cat /proc/$PPID/environ",
        "cat /etc/shadow | grep .",
        "ls {home}",
        "find / -name peer.pem 2>/dev/null | xargs -r cat; exit 1",
        "cat {blob}",
        "sh -c 'cd {root} && cat blobs/*/*'",
    ],
)
def test_what_is_not_the_tasks_cannot_be_read(bench: Bench, attack: str) -> None:
    (bench.directory / "other").write_text("secret")
    other = bench.store.ingest(str(bench.directory / "other"), "other")
    ended = run_attack(bench, attack, other.digest)
    assert ended.outcome == "failed", ended
    assert "my key" not in ended.stdout and "secret" not in ended.stdout


@pytest.mark.parametrize(
    "attack",
    [
        "echo x > {home}/evil",
        "rm -rf {home}/peer.pem; test ! -e {home}/peer.pem && exit 1",
        "echo x >> {blob}",
        "touch /usr/bin/evil",
        "mkdir {root}/work/r1/evil",
        "ln {blob} mine && chmod u+w mine && echo x >> mine",
        "mv {root}/blobs {root}/gone",
    ],
)
def test_what_is_not_the_tasks_cannot_be_changed(bench: Bench, attack: str) -> None:
    (bench.directory / "other").write_text("good")
    other = bench.store.ingest(str(bench.directory / "other"), "other")
    assert run_attack(bench, attack, other.digest).outcome == "failed"
    assert (bench.directory / "peer.pem").read_text() == "my key\n"
    assert bench.store.intact(other, by_content=True)
    assert not (bench.directory / "evil").exists()


def run_attack(bench: Bench, attack: str, digest: str) -> JobEnded:
    blob = bench.store.blob_path(digest)
    return bench.run(
        command(attack.format(home=bench.directory, root=bench.root, blob=blob, digest=digest))
    )


def test_a_task_can_neither_stop_its_slot_nor_leave_a_daemon(bench: Bench) -> None:
    if landlock.abi() < choosing.SIGNALS_FROM:
        pytest.skip("this kernel's Landlock does not rule signals")
    run = "setsid sh -c 'env -i sleep 600 & echo $!'; kill -9 $PPID || echo refused"
    ended = bench.run(command(run))
    assert ended.outcome == "succeeded", ended
    pid, word = ended.stdout.split()
    assert word == "refused"
    bench.until(lambda: not alive(int(pid)))


@pytest.mark.parametrize("instead", ["link", "directory"])
def test_what_a_task_puts_in_the_place_of_its_directory_is_no_others(
    bench: Bench, instead: str
) -> None:
    (bench.root / "empty").mkdir()
    there = f"ln -s {bench.root}/empty $OLD" if instead == "link" else "mkdir -m 700 $OLD"
    ended = bench.run(command(f"OLD=$PWD; mv $OLD $OLD.was && {there}"))
    assert ended.outcome == "succeeded", ended
    after = bench.run(command("umask 0; pwd -P; echo x > out", "1.1", outputs=("out",)))
    assert after.outcome == "succeeded", after
    assert not after.stdout.startswith(str(bench.root / "empty"))


@pytest.mark.parametrize("tmp", ["kept", "link", "file", "gone"])
def test_what_a_task_leaves_beside_its_directory_is_gone(bench: Bench, tmp: str) -> None:
    (bench.root / "precious").mkdir()
    (bench.root / "precious/file").write_text("x")
    run = "echo x > ../left; mkdir ../more; touch ../more/file"
    if tmp != "kept":
        instead = {"link": f"ln -s {bench.root}/precious $T", "file": "touch $T", "gone": "true"}
        run += f"; T=$TMPDIR; mv $T $T.was && {instead[tmp]}"
    assert bench.run(command(run)).outcome == "succeeded"
    for label in ("1.1", "2.1"):
        after = bench.run(command("ls -A ..; ls -A $TMPDIR; echo y > $TMPDIR/y", label))
        assert (after.outcome, after.stdout.split()) == ("succeeded", ["1", "tmp"])
    assert (bench.root / "precious/file").read_text() == "x"


def test_the_environment_is_clean(make: Callable[..., Bench], monkeypatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "my key")
    ended = make().run(command("env; test -d $HOME"))
    assert ended.outcome == "succeeded" and "my key" not in ended.stdout
    assert "\nTMPDIR=" in "\n" + ended.stdout


def test_the_network_is_off_but_not_within(bench: Bench, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dial = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert bench.run(command(f'python3 -c "{dial}"')).outcome == "failed"
    if kind == "full":
        inside = (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); "
            "socket.create_connection(s.getsockname()); print('met')"
        )
        assert bench.run(command(f'python3 -c "{inside}"', "1.1")).stdout == "met\n"


def test_the_network_is_there_if_allowed(make: Callable[..., Bench]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dial = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert make(network=True).run(command(f'python3 -c "{dial}"')).outcome == "succeeded"


@pytest.mark.parametrize(
    ("limit", "run", "word"),
    [
        ({"processes_max": 20}, "for i in $(seq 60); do sleep 60 & done; wait", "20 processes"),
        ({"memory_bytes_max": 64 << 20}, "exec python3 -c 'x = b\"x\" * (200 << 20); import time; "
         "time.sleep(60)'", "64 MiB of memory"),
        ({"disk_bytes_max": 8 << 20}, "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; sleep 60",
         "8 MiB of disk"),
    ],
)  # fmt: skip
def test_what_a_task_may_use_up_is_limited(
    make: Callable[..., Bench], limit: dict[str, int], run: str, word: str
) -> None:
    bench = make(**limit)
    ended = bench.run(command(run))
    assert ended.outcome == "failed" and word in ended.reason, ended
    assert bench.run(command("true", "1.1")).outcome == "succeeded"


def test_a_home_that_python_was_started_in_is_not_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not any(str(tmp_path).startswith(path) for path in Rules("full").readable())


def test_outermost_paths_and_clean_environments() -> None:
    assert outermost(["/a/b", "/a", "/ab"]) == ["/a", "/ab"]
    given = {"PATH": "/home/me/bin:/usr/bin", "LC_ALL": "C", "AWS_SECRET": "x", "HOME": "/home/me"}
    clean = clean_environment(given, ["/usr"])
    assert set(clean) == {"PATH", "LC_ALL"}
    assert "/home/me/bin" not in clean["PATH"] and "/usr/bin" in clean["PATH"].split(":")


def test_shared_directories_can_be_read_and_not_written(
    make: Callable[..., Bench], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/genome").write_text("acgt\n")
    bench = make(shared=(str(tmp_path / "data"),))
    assert bench.run(command(f"cat {tmp_path}/data/genome")).stdout == "acgt\n"
    assert bench.run(command(f"touch {tmp_path}/data/evil", "1.1")).outcome == "failed"
    assert os.listdir(tmp_path / "data") == ["genome"]
