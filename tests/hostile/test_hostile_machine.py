"""What a task does to the machine it runs on: stored files, its slot, the disk. Nobody else is
harmed, and nobody else is blamed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from peer_bench import Bench, alive
from surely import started, sureline, until
from toy_grid import ToyGrid

from sureline.peer import grid_agent, orphans
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CheckJob, CommandJob, JobEnded, JobStarted
from sureline.peer.messages import Attach, Attached, Bind, Finished, Refused
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.agent import Agent

POISON = """\
name: poison
tasks:
  poison:
    run: |
      {place}
      touch -r "$f" times; chmod u+w "$f"; printf evil > "$f"; touch -r times "$f"; chmod u-w "$f"
    inputs: [in.txt]
"""
READ = """\
name: read
tasks:
  read: {run: cat in.txt > out.txt, inputs: [in.txt], outputs: [out.txt]}
"""


@pytest.mark.parametrize(
    "place", ["f=in.txt", "f=$(echo ../../../blobs/*/*)", "f=$(realpath in.txt)"]
)
def test_a_poisoned_input_reaches_no_other_run(tmp_path: Path, place: str) -> None:
    (tmp_path / "in.txt").write_text("good")
    os.utime(tmp_path / "in.txt", (1, 1))  # old enough to be known by its time
    (tmp_path / "poison.yaml").write_text(POISON.format(place=place))
    (tmp_path / "read.yaml").write_text(READ)
    assert sureline(tmp_path, "run", "read.yaml", "--fresh").code == 0
    sureline(tmp_path, "run", "poison.yaml", "--fresh")
    said = sureline(tmp_path, "run", "read.yaml", "--fresh")
    assert said.code == 0, said
    assert (tmp_path / "out.txt").read_text() == "good"


def test_a_flipped_byte_of_a_result_is_found_before_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: two\ntasks:\n"
        "  one: {run: printf good > one.txt, outputs: [one.txt]}\n"
        "  two: {run: cat one.txt > two.txt, inputs: [one.txt], outputs: [two.txt]}\n"
    )
    assert sureline(tmp_path, "run", "flow.yaml").code == 0
    (tmp_path / "two.txt").unlink()
    for blob in (tmp_path / ".sureline/blobs").glob("*/*"):
        before = blob.stat()
        blob.chmod(0o644)
        blob.write_text("evil")
        blob.chmod(0o444)
        os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    said = sureline(tmp_path, "run", "flow.yaml")
    assert said.code == 0, said
    assert (tmp_path / "two.txt").read_text() == "good"


def test_a_task_that_kills_its_slot_leaves_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: killer\ntasks:\n  t:\n    run: |\n"
        f"      setsid env -i sh -c 'sleep 600 & echo $! > {tmp_path}/pid'\n"
        f"      while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done; kill -9 $PPID; sleep 600\n"
    )
    said = sureline(tmp_path, "run", "flow.yaml")
    assert said.code == 1 and "SIGKILL" in said.out + said.err, said
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_slot_that_takes_a_huge_output_dies_with_its_driver(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: huge\ntasks:\n  t: {run: truncate -s 200G big, outputs: [big]}\n"
    )
    token = f"{tmp_path}/.sureline:"

    def hashing() -> list[int]:
        found = orphans.find(token, prefix=True)
        return [pid for pid in found if _reads(pid, "/big")]

    with started(tmp_path, "run", "flow.yaml") as running:
        (slot,) = until(hashing, "the slot to hash")
        running.kill()
        until(lambda: not alive(slot), "the slot to end")


def _reads(pid: int, name: str) -> bool:
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
        return any(os.readlink(f"/proc/{pid}/fd/{fd}").endswith(name) for fd in fds)
    except OSError:
        return False


@pytest.mark.parametrize("trap", ["mkfifo", "ln -s /dev/zero"])
def test_a_trap_where_progress_is_told_does_not_hold_the_slot_up(tmp_path: Path, trap: str) -> None:
    bench = Bench(tmp_path)
    try:
        ended = bench.run(
            CommandJob("0.1", "t", 1, f"{trap} $SURELINE_PROGRESS; sleep 600", timeout_s=1.5)
        )
        assert ended.outcome == "timeout"
    finally:
        bench.close()


# -- the machine's own fault -------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=False)


def test_a_full_or_read_only_disk_is_the_machines_fault(small_disk: Path) -> None:
    bench = Bench(small_disk)
    try:
        good = bench.run(CommandJob("0.1", "t", 1, "exit 3"))
        assert (good.outcome, good.fault) == ("failed", ""), "its own"
        assert bench.run(CheckJob("check")).fault == "machine", "4 MB are not enough to be well"
        full = bench.run(
            CommandJob("1.1", "t", 1, "cat /dev/zero > big || :", outputs=("big", "none"))
        )
        assert full.outcome == "failed"
        ballast = small_disk / "ballast"
        _fill(ballast)
        ended = bench.run(CommandJob("2.1", "t", 1, "echo x > out", outputs=("out",)))
        assert (ended.outcome, ended.fault) == ("failed", "machine"), ended
        ballast.unlink()
        subprocess.run(["mount", "--bind", str(small_disk), str(small_disk)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(small_disk)], check=True)
        ended = bench.run(CommandJob("3.1", "t", 1, "echo x > out", outputs=("out",)))
        assert (ended.outcome, ended.fault) == ("failed", "machine"), ended
        assert "read-only" in ended.reason.lower()
    finally:
        subprocess.run(["umount", "--lazy", str(small_disk)], check=False)
        bench.close()


def _fill(ballast: Path) -> None:
    fd = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError:
        pass  # there is no space left
    finally:
        os.close(fd)


class Writer(Agent):
    def __init__(self, grid: ToyGrid) -> None:
        super().__init__("w/run.r", grid.place("w/run.r"))
        grid.join(self)
        self.heard: list[object] = []

    def receive(self, sender, message) -> None:
        self.heard.append(message)

    def of(self, kind):
        return [message for message in self.heard if isinstance(message, kind)]

    def bind(self, task: str, inputs=()) -> None:
        job = CommandJob(f"{task}.1", task, 1, task, inputs, (f"{task}.out",))
        sources = {record.digest: ("w",) for record in inputs}
        self.world.send("p/peer", Bind("r", task, 1, job, Needs(), epoch=1, sources=sources))


class Ill:
    """A machine whose jobs end as `how` says."""

    def __init__(self, grid: ToyGrid, monkeypatch: pytest.MonkeyPatch) -> None:
        self.grid = grid
        self.how: JobEnded | None = None
        self.checks = 0
        place = grid.place("p/peer")
        start = place.start

        def started(job, on_event, *, after=None):
            if isinstance(job, CheckJob):
                self.checks += 1
                ended = self.how or JobEnded("succeeded")
            elif self.how is None:
                return start(job, on_event, after=after)
            else:
                ended = self.how
                place.after(0.0, lambda: on_event(JobStarted(1)))
            place.after(0.1, lambda: on_event(ended))
            return None

        monkeypatch.setattr(place, "start", started)
        self.agent = GridPeerAgent("p/peer", place, Capacity(cores=1, memory_bytes=100))
        grid.join(self.agent)
        self.agent.start()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch):
    grid = ToyGrid()
    made = []
    grid.boot("p", lambda: made.append(Ill(grid, monkeypatch)))
    writer = Writer(grid)
    writer.world.send("p/peer", Attach("r", 1, 1))
    grid.run(lambda: writer.of(Attached), grid.time + 100)
    return grid, made[0], writer


def test_an_ill_peer_gives_tasks_back_and_takes_none_until_it_is_well(lab) -> None:
    grid, ill, writer = lab
    ill.how = JobEnded("failed", reason="its disk is full", fault="machine")
    writer.bind("a")
    writer.bind("b")
    grid.run(lambda: len(writer.of(Refused)) == 2, grid.time + 100)
    assert not writer.of(Finished), "nobody is blamed"
    assert "its disk is full" in writer.of(Refused)[0].reason
    assert ill.agent.busy == 0 and ill.agent.cores_in_use == 1, "it looks busy to others"
    writer.bind("c")
    grid.run(lambda: len(writer.of(Refused)) == 3, grid.time + 10)
    grid.run(lambda: ill.checks == 2, grid.time + 10 * grid_agent.WELL_AGAIN_S)
    ill.how = None
    grid.run(lambda: ill.agent.cores_in_use == 0, grid.time + 10 * grid_agent.WELL_AGAIN_S)
    writer.bind("d")
    grid.run(lambda: writer.of(Finished), grid.time + 100)
    assert writer.of(Finished)[0].task == "d"


def test_a_damaged_input_is_fetched_again_and_the_task_not_blamed(lab) -> None:
    grid, ill, writer = lab
    record = FileRecord("f", "d1", 10)
    grid.machine("w").files.add("d1")
    ill.how = JobEnded("failed", reason="damaged", fault="inputs", missing=("d1",))
    writer.bind("a", inputs=(record,))
    grid.run(lambda: ill.agent._tasks and next(iter(ill.agent._tasks.values())).fetched_again)
    ill.how = None
    grid.run(lambda: writer.of(Finished), grid.time + 100)
    assert writer.of(Finished)[0].ended.outcome == "succeeded"
    ill.how = JobEnded("failed", reason="damaged", fault="inputs", missing=("d1",))
    writer.bind("b", inputs=(record,))
    grid.run(lambda: writer.of(Refused), grid.time + 100)
    assert writer.of(Refused)[0].missing == ("d1",), "in the end its writer has it made again"
