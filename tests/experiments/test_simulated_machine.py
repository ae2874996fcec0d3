"""The parts of a simulated machine: jobs that are slowed, stopped, followed or die with it; files
that come, go and are lost; a journal of which a crash leaves what was synced."""

from __future__ import annotations

from random import Random

import pytest

from sureline.experiments.machine_files import HASH_BYTES_S, STALLED_S, SimulatedStore
from sureline.experiments.machine_journal import entries, past_of, write_now
from sureline.experiments.machine_kept import KeptOnDisk
from sureline.experiments.machines import SimulatedPeer, make_parts
from sureline.experiments.work import Work
from sureline.journal.events import Opened, Submitted, TaskBound, TaskEnded, TaskReady, TaskRevoked
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import (
    Blob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobReturned,
    JobStarted,
    PauseJob,
    PublishJob,
    UserFile,
    VerifyJob,
)
from sureline.run.past import KeptAnswer, KeptFiles, PastResult, PastUnknown
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Graph, Takes, Task
from sureline.world.address import at
from sureline.world.simulated import Constant, Link, MachineSpec, Network, Simulation


class Lab:
    """Machines of two cores with a store each, and an agent's world on each."""

    def __init__(self, works_s, *, nodes=("m",), fail=0.0, cache_bytes=1000, keeps=True, **spec):
        tasks = [Task(n, Command(n), takes=Takes(s, s, s)) for n, s in works_s.items()]
        self.work = Work(Graph("g", tasks), seed=1, fail=fail)
        self.sim = Simulation(1, Network(Link(Constant(0.01))))
        self.stores: dict[str, SimulatedStore] = {}
        self.boxes = {}
        for node in nodes:
            store = self.stores[node] = SimulatedStore(node, cache_bytes, keeps)
            box = self.boxes[node] = SimulatedPeer(
                node, "", Capacity(2, 0), store, [], KeptOnDisk(self.sim, node)
            )
            parts = make_parts(box, self.stores, self.work)
            self.sim.machine(node, MachineSpec(slots=2, **spec), parts)
        self.worlds = {node: self.sim.place(at(node, "x")) for node in nodes}
        self.heard = {}

    def start(self, name, cores=1.0, after=None, timeout_s=None, outputs=(), inputs=()):
        job = CommandJob(
            f"{name}.1", name, 1, name, inputs, outputs, timeout_s=timeout_s, cores=cores
        )
        return self.start_job(name, job, after)

    def start_job(self, name, job, after=None):
        heard = self.heard[name] = []
        world = self.worlds["m"]
        return world.start(job, lambda e: heard.append((self.sim.time, e)), after=after)

    def ended(self, name):
        """(when, JobEnded)"""
        when, event = self.heard[name][-1]
        assert isinstance(event, JobEnded), self.heard[name]
        return when, event

    def fetch(self, wanted, sources=(), node="m"):
        found = []
        self.worlds[node].fetch(wanted, sources, lambda f: found.append((self.sim.time, f)))
        self.sim.run(condition=lambda: bool(found))
        return found[0]


def test_a_job_takes_its_work_at_the_machines_speed():
    lab = Lab({"a": 10.0}, power=2.0)
    lab.start("a")
    lab.sim.run()
    (_, started), (when, ended) = lab.heard["a"]
    assert isinstance(started, JobStarted)
    assert (ended.outcome, ended.exit_code) == ("succeeded", 0)
    assert when == pytest.approx(5.0)
    assert ended.elapsed_s == pytest.approx(5.0)


def test_a_slow_down_rescales_what_is_left():
    lab = Lab({"a": 10.0})
    lab.start("a")
    lab.sim.at(4.0, lambda: lab.sim.slow("m", 3.0))
    lab.sim.at(10.0, lambda: lab.sim.slow("m", 1.0))
    lab.sim.run()
    assert lab.ended("a")[0] == pytest.approx(4 + 6 + 4)  # 4 done, 2 in six slow seconds, 4 left


def test_a_frozen_machine_does_nothing_meanwhile():
    lab = Lab({"a": 10.0})
    lab.start("a")
    lab.sim.at(4.0, lambda: lab.sim.freeze("m"))
    lab.sim.at(34.0, lambda: lab.sim.thaw("m"))
    lab.sim.run()
    assert lab.ended("a")[0] == pytest.approx(40.0)


def test_more_than_there_are_cores_for_slows_all_alike():
    lab = Lab({"a": 6.0, "b": 6.0, "c": 3.0})
    for name in "abc":
        lab.start(name)
    lab.sim.run()
    assert lab.ended("c")[0] == pytest.approx(4.5)  # three share two cores
    assert lab.ended("a")[0] == pytest.approx(4.5 + 3.0)
    assert {ran.task: ran.outcome for ran in lab.boxes["m"].log} == dict.fromkeys(
        "abc", "succeeded"
    )


def test_failures_and_timeouts_end_a_job_badly():
    lab = Lab({"a": 10.0, "slow": 10.0}, fail=1.0)
    lab.start("a")
    lab.start("slow", timeout_s=0.001)
    lab.sim.run()
    when, failed = lab.ended("a")
    assert (failed.outcome, failed.exit_code) == ("failed", 1)
    assert when < 10.0
    assert lab.ended("slow")[1].outcome == "timeout"


def test_stopping_asks_and_force_does_not():
    lab = Lab({"a": 10.0, "b": 10.0})
    a, b = lab.start("a"), lab.start("b")
    lab.sim.at(1.0, lambda: lab.worlds["m"].stop(a))
    lab.sim.at(1.0, lambda: lab.worlds["m"].stop(b, force=True))
    lab.sim.run()
    assert lab.ended("a")[1].outcome == lab.ended("b")[1].outcome == "cancelled"
    assert lab.ended("a")[0] > lab.ended("b")[0] == pytest.approx(1.0)
    lab.worlds["m"].stop(a)  # nothing happens any more
    lab.sim.run()
    assert len(lab.heard["a"]) == 2


def test_a_follower_begins_where_the_other_ends():
    lab = Lab({"a": 0.01, "b": 1.0})
    lab.start("b", after=lab.start("a"))
    lab.sim.run()
    assert lab.heard["b"][0][0] == pytest.approx(lab.ended("a")[0])
    assert lab.ended("b")[0] == pytest.approx(1.01)


def test_a_follower_of_what_takes_long_or_is_over_is_given_back():
    lab = Lab({"a": 10.0, "b": 1.0, "c": 1.0})
    a = lab.start("a")
    lab.start("b", after=a)
    lab.sim.run()
    assert [type(e) for _, e in lab.heard["b"]] == [JobReturned]
    lab.start("c", after=a)
    lab.sim.run()
    assert [type(e) for _, e in lab.heard["c"]] == [JobReturned]


def test_jobs_die_with_their_machine_and_nobody_hears():
    lab = Lab({"a": 10.0})
    lab.start("a")
    lab.sim.at(3.0, lambda: lab.sim.crash("m"))
    lab.sim.at(4.0, lambda: lab.sim.restart("m"))
    lab.sim.run(until=100.0)
    assert [type(e) for _, e in lab.heard["a"]] == [JobStarted]
    (ran,) = lab.boxes["m"].log
    assert (ran.started_s, ran.ended_s, ran.outcome) == (0.0, 3.0, "crash")


def test_outputs_are_in_the_store_and_can_be_put_in_place():
    lab = Lab({"a": 1.0})
    lab.start("a", outputs=("x.txt",))
    lab.sim.run()
    made = lab.ended("a")[1].outputs
    assert made[0].digest in lab.stores["m"]
    lab.start_job("verify", VerifyJob("verify", made))
    lab.start_job("publish", PublishJob("publish", made))
    lab.start_job("lost", PublishJob("lost", (FileRecord("y", "0" * 64, 1),)))
    lab.sim.run()
    assert lab.ended("verify")[1].outcome == lab.ended("publish")[1].outcome == "succeeded"
    assert lab.ended("lost")[1].outcome == "failed"
    assert lab.stores["m"].published == {"x.txt": made[0].digest}


def test_a_job_without_its_inputs_fails():
    lab = Lab({"a": 1.0})
    lab.start("a", inputs=(FileRecord("in.txt", "0" * 64, 1),))
    lab.sim.run()
    ended = lab.ended("a")[1]
    assert "in.txt is gone" in ended.reason
    assert (ended.fault, ended.missing) == ("inputs", ("0" * 64,))  # as a real slot says it


def test_a_pause_lasts_as_long_as_it_says():
    lab = Lab({}, power=7.0)
    lab.start_job("p", PauseJob("p", "p", 1, 2.5))
    lab.sim.run()
    assert lab.ended("p")[0] == 2.5


# -- files -------------------------------------------------------------------------------------


FILE = FileRecord("f", "f" * 64, 500)


def test_files_come_from_the_first_source_that_has_them():
    lab = Lab({}, nodes=("m", "a", "b"), up_bytes_per_s=100.0, down_bytes_per_s=100.0)
    lab.stores["b"].add(FILE)
    when, found = lab.fetch(Blob(FILE), ["a", "b"])
    assert found == FileReady(FILE, "b")
    assert when == pytest.approx(5.0, rel=0.02)  # 500 bytes at 100 a second
    assert FILE.digest in lab.stores["m"]
    assert lab.fetch(Blob(FILE), ["b"])[1] == FileReady(FILE)  # it is here now


def test_a_file_that_nobody_has_is_missing():
    lab = Lab({}, nodes=("m", "a"))
    assert isinstance(lab.fetch(Blob(FILE), ["a"])[1], FileMissing)
    assert isinstance(lab.fetch(Blob(FILE), [])[1], FileMissing)


@pytest.mark.parametrize("trouble", ["crash", "freeze", "partition"])
def test_another_source_takes_over_when_one_is_in_trouble(trouble):
    lab = Lab({}, nodes=("m", "a", "b"), up_bytes_per_s=100.0, down_bytes_per_s=100.0)
    for node in ("a", "b"):
        lab.stores[node].add(FILE)
    if trouble == "partition":
        lab.sim.at(1.0, lambda: lab.sim.partition([["m", "b"], ["a"]]))
    else:
        lab.sim.at(1.0, lambda: getattr(lab.sim, trouble)("a"))
    when, found = lab.fetch(Blob(FILE), ["a", "b"])
    assert found == FileReady(FILE, "b")
    assert when < 2 * STALLED_S + 5.5


def test_a_fetch_is_answered_once_whatever_comes_late():
    lab = Lab({}, nodes=("m", "a", "b", "c"), up_bytes_per_s=100.0, down_bytes_per_s=100.0)
    for node in ("a", "b", "c"):
        lab.stores[node].add(FILE)
    found = []
    lab.worlds["m"].fetch(Blob(FILE), ["a", "b", "c"], found.append)
    # the time to give up, and then the end of a's transfer, both wait for the frozen machine
    lab.sim.at(0.001, lambda: lab.sim.freeze("m"))
    lab.sim.at(15.0, lambda: lab.sim.crash("a"))
    lab.sim.at(30.0, lambda: lab.sim.thaw("m"))
    lab.sim.run()
    assert found == [FileReady(FILE, "b")]


def test_a_store_is_bounded_and_keeps_what_is_marked():
    store = SimulatedStore("m", 300, keeps=True)
    files = [FileRecord(f"f{n}", f"{n}" * 64, 100) for n in range(5)]
    for file in files[:3]:
        assert store.add(file) == ""
    store.keep([files[0]], "run")
    store.pin([files[1]], "task")
    store.use(files[2].digest)
    assert store.add(files[3]) == ""
    assert [file.digest in store for file in files] == [True, True, False, True, False]
    assert store.add(files[4]) == ""
    assert files[3].digest not in store
    store.pin([files[4]], "task")
    assert "no room" in store.add(files[2])
    assert store.used_bytes == 300
    store.unpin("task")
    store.release([files[0].digest], "run")
    assert store.add(files[2]) == ""


def test_a_damaged_copy_is_found_when_it_is_looked_at_and_removed():
    lab = Lab({}, nodes=("m", "a", "b"))
    for node in ("a", "b"):
        lab.stores[node].add(FILE)
    lab.stores["a"].damage(1.0, Random(1))
    assert lab.fetch(Blob(FILE), ["a", "b"])[1] == FileReady(FILE, "b")
    assert FILE.digest not in lab.stores["a"]
    lab.stores["m"].damage(1.0, Random(1))
    assert lab.fetch(KeptFiles((FILE,)))[1] == KeptAnswer(False)
    lab.stores["b"].damage(0.0, Random(1))
    assert lab.stores["b"].verify([FILE]).outcome == "succeeded"


def test_a_full_store_takes_nothing_and_its_machine_is_not_well():
    store = SimulatedStore("m", 1000, keeps=True)
    store.add(FILE)
    store.full = True
    assert store.add(FILE) == "" and "no room" in store.add(FileRecord("g", "0" * 64, 1))
    assert store.check().fault == "machine"
    store.full = False
    assert store.check().outcome == "succeeded"


@pytest.mark.parametrize("keeps", [True, False])
def test_whether_a_store_survives_a_crash_is_a_setting(keeps):
    lab = Lab({}, keeps=keeps)
    store = lab.stores["m"]
    store.add(FILE)
    lab.fetch(KeptFiles((FILE,)))
    lab.sim.kill("m")
    assert FILE.digest in store
    lab.sim.restart("m")
    lab.worlds["m"] = lab.sim.place("m/x")
    lab.fetch(KeptFiles((FILE,)))
    lab.sim.crash("m")
    assert (FILE.digest in store) is keeps


def test_the_users_files_are_hashed_and_past_results_unknown():
    lab = Lab({}, cache_bytes=1e12)
    when, found = lab.fetch(UserFile("in.txt"))
    assert isinstance(found, FileReady)
    assert found.file == lab.work.user_file("in.txt")
    assert when >= found.file.size / HASH_BYTES_S
    assert isinstance(lab.fetch(PastResult("key"))[1], PastUnknown)
    assert lab.fetch(KeptFiles((found.file,)))[1] == KeptAnswer(True)
    assert lab.fetch(KeptFiles((found.file, FILE), True))[1] == KeptAnswer(False)


# -- the journal -------------------------------------------------------------------------------


def test_a_crash_leaves_what_was_synced_and_a_kill_what_was_flushed():
    for end, left in (("crash", 1), ("kill", 2)):
        lab = Lab({})
        world, disk = lab.worlds["m"], lab.sim.machine("m").disk
        world.record(TaskReady(0.0, "synced"))
        synced = []
        world.sync(lambda: synced.append(True))  # noqa: B023 - used in this turn only
        lab.sim.run(condition=lambda: bool(synced))  # noqa: B023 - as above
        world.record(TaskReady(0.0, "flushed"))
        world.flush()
        world.record(TaskReady(0.0, "neither"))
        getattr(lab.sim, end)("m")
        names = [entry.event.task for entry in entries(disk)]
        assert names == ["synced", "flushed"][:left]


def test_what_is_recorded_is_durable_soon_without_anybody_asking():
    lab = Lab({})
    lab.worlds["m"].record(TaskReady(0.0, "a"))
    lab.sim.run()
    lab.sim.crash("m")
    assert len(entries(lab.sim.machine("m").disk)) == 1


def test_positions_follow_epochs_and_the_past_is_read_from_them():
    lab = Lab({})
    disk = lab.sim.machine("m").disk
    made = TaskEnded(3.0, "a", "succeeded", 2)
    for event in [
        Submitted(0.0, "r", "g", 2),
        Opened(0.0, 1, "m", 1),
        TaskBound(1.0, "a", 1, "m"),
        TaskBound(2.0, "a", 2, "m"),
        made,
        Opened(4.0, 2, "m", 2),
        TaskEnded(5.0, "b", "succeeded", 1),
        TaskRevoked(6.0, "b"),
    ]:
        write_now(disk, event)
    found = entries(disk)
    assert [(e.origin, e.sequence) for e in found] == [
        ("writer.0", 1),
        *(("writer.1", n) for n in (1, 2, 3, 4)),
        *(("writer.2", n) for n in (1, 2, 3)),
    ]
    past = past_of([entry.event for entry in found])
    assert past.committed == {"a": made}
    assert past.attempts == {"a": 2}
