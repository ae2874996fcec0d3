"""A machine that runs tasks for others over a network: fences, fetches, reports until thanked."""

from __future__ import annotations

import msgspec
import pytest
from toy_grid import ToyGrid, digest_of

from sureline.peer import gathering, grid_agent, outbox, writers
from sureline.peer.admitting import Admitting
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.messages import (
    Acknowledge,
    Attach,
    Attached,
    Bind,
    Brought,
    Fenced,
    Finished,
    Refused,
    Release,
    Started,
    Withdraw,
)
from sureline.peer.outbox import REPORT_BYTES_MAX, fitting
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.agent import Agent

RUN = "r"


class Writer(Agent):
    """Says what a test says, and remembers what it hears."""

    def __init__(self, grid, node="w", epoch=1):
        super().__init__(f"{node}/run.{RUN}", grid.place(f"{node}/run.{RUN}"))
        grid.join(self)
        self.epoch = epoch
        self.heard = []
        self.grid = grid

    def receive(self, sender, message):
        self.heard.append(message)

    def of(self, kind):
        return [message for message in self.heard if isinstance(message, kind)]

    def tell(self, message):
        self.world.send("p/peer", message)

    def attach(self, serial=1):
        self.tell(Attach(RUN, self.epoch, serial))
        until(self.grid, lambda: self.of(Attached) or self.of(Fenced))

    def bind(self, task, attempt=1, inputs=(), sources=(), **needs):
        job = CommandJob(f"{task}.{attempt}", task, attempt, task, inputs, (f"{task}.out",))
        nodes = {record.digest: tuple(sources) for record in inputs}
        self.tell(
            Bind(
                RUN,
                task,
                attempt,
                job,
                Needs(**needs),
                epoch=self.epoch,
                key="k",
                sources=nodes,
                warrant=b"w" * 16,
            )
        )

    def thank(self, *reports):
        self.tell(Acknowledge(RUN, self.epoch, reports))


def until(grid, condition, limit_s=1000.0):
    grid.run(condition, grid.time + limit_s)


def wait(grid, seconds):
    over = []
    grid.after(seconds, lambda: over.append(1))
    until(grid, lambda: over, seconds + 1.0)


def boot(grid, cores=1, marks=None):
    agents = []

    def start():
        agent = GridPeerAgent(
            "p/peer", grid.place("p/peer"), Capacity(cores=cores, memory_bytes=100), marks
        )
        grid.join(agent)
        agents.append(agent)
        agent.start()

    grid.boot("p", start)
    return agents


@pytest.fixture
def grid():
    return ToyGrid()


def test_a_report_is_told_until_it_is_acknowledged(grid):
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    writer.bind("a")
    until(grid, lambda: len(writer.of(Finished)) == 3)
    assert {(m.task, m.attempt, m.ended.outcome, m.key) for m in writer.of(Finished)} == {
        ("a", 1, "succeeded", "k")
    }
    assert len(writer.of(Started)) == 1
    writer.thank(("a", 1))
    wait(grid, 1.0)
    told = len(writer.of(Finished))
    wait(grid, 1000.0)
    assert len(writer.of(Finished)) == told


def test_nobody_binds_without_attaching(grid):
    boot(grid)
    writer = Writer(grid)
    writer.bind("a")
    wait(grid, 10.0)
    assert grid.started == []


def test_a_report_is_durable_before_it_is_sent_and_survives_a_crash(grid):
    grid.keep_sent = True
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    writer.bind("a")
    until(grid, lambda: any(isinstance(message, Finished) for _, _, message in grid.sent))
    assert any(b"a.out" in value for value in grid.machine("p").synced_puts.values())
    grid.crash("p")
    wait(grid, 1.0)
    writer.heard.clear()
    grid.restart("p")
    until(grid, lambda: writer.of(Finished))
    assert len(grid.started) == 1
    assert [m.serial for m in writer.of(Attached)] == [0], "it tells that it was started again"


def test_a_report_goes_to_the_newest_writer(grid):
    boot(grid)
    first = Writer(grid)
    first.attach()
    first.bind("a")
    until(grid, lambda: first.of(Finished))
    grid.crash("w")
    second = Writer(grid, "w2", epoch=2)
    second.attach()
    assert second.of(Attached)[0].reports == (("a", 1, b"w" * 16),)
    until(grid, lambda: second.of(Finished))
    assert len(grid.started) == 1


def test_an_attempt_under_way_is_told_to_the_next_writer_and_goes_on(grid):
    grid.duration = lambda job: 50.0
    boot(grid)
    first = Writer(grid)
    first.attach()
    first.bind("a")
    first.bind("b")
    until(grid, lambda: first.of(Started))
    second = Writer(grid, "w2", epoch=2)
    second.attach()
    assert second.of(Attached)[0].under_way == (
        ("a", 1, True, b"w" * 16),
        ("b", 1, False, b"w" * 16),
    )
    until(grid, lambda: len(second.of(Finished)) == 2)
    assert [job.task for _, _, job in grid.started] == ["a", "b"]


@pytest.mark.parametrize("crash", [False, True])
def test_an_older_writer_is_fenced_whatever_it_asks_also_after_a_crash(grid, crash):
    boot(grid)
    Writer(grid, "w2", epoch=5).attach()
    if crash:
        grid.crash("p")
        grid.restart("p")
    old = Writer(grid, epoch=4)
    old.tell(Attach(RUN, 4, 1))
    old.bind("a")
    old.tell(Withdraw(RUN, "a", 1, epoch=4))
    old.tell(Release(RUN, 4, over=True))
    old.thank(("a", 1))
    wait(grid, 5.0)
    assert [m.epoch for m in old.of(Fenced)] == [5] * 5
    assert len(old.heard) == 5
    assert grid.started == []


def test_a_late_copy_of_a_bind_starts_nothing_but_a_later_epoch_may(grid):
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    writer.bind("a")
    writer.bind("a")
    until(grid, lambda: writer.of(Finished))
    writer.thank(("a", 1))
    writer.bind("a")
    wait(grid, 20.0)
    assert len(grid.started) == 1
    writer.epoch = 2
    writer.attach()
    wait(grid, 1.0)
    writer.bind("a")
    wait(grid, 20.0)
    assert len(grid.started) == 2


def test_a_bind_that_comes_after_its_withdrawal_starts_nothing(grid):
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    writer.tell(Withdraw(RUN, "a", 1, epoch=1))
    writer.bind("a")
    wait(grid, 20.0)
    assert grid.started == []


def test_inputs_are_fetched_from_their_sources_while_others_run(grid):
    grid.transfer_s = lambda: 3.0
    grid.duration = lambda job: 10.0
    boot(grid)
    writer = Writer(grid)
    record = FileRecord("f", digest_of("user", "f"), 10)
    grid.machine("w").files.add(record.digest)
    writer.attach()
    writer.bind("a")
    writer.bind("b", inputs=(record,), sources=("gone", "w"))
    until(grid, lambda: {m.task for m in writer.of(Finished)} == {"a", "b"})
    begun = {job.task: at for at, _, job in grid.started}
    assert begun["b"] - begun["a"] == pytest.approx(10.0), "its input came meanwhile"
    brought = {m.task: m.brought for m in writer.of(Finished)}
    assert brought == {"a": Brought(), "b": Brought(peer_files=1, peer_bytes=10)}


def test_an_input_that_cannot_be_had_is_named(grid):
    (agent,) = boot(grid)
    writer = Writer(grid)
    here, gone = FileRecord("f", "d1", 10), FileRecord("g", "d2", 10)
    grid.machine("w").files.add("d1")
    writer.attach()
    writer.bind("a", inputs=(here, gone), sources=("w",))
    until(grid, lambda: writer.of(Refused))
    (refused,) = writer.of(Refused)
    assert refused.missing == ("d2",)
    assert "cannot get g (" in refused.reason, "and why"
    assert (agent.busy, agent.cores_in_use) == (0, 0)


class Noted:
    """Marks, written down."""

    def __init__(self):
        self.pinned = {}
        self.kept = []
        self.released = []
        self.marked = set()

    def pin(self, files, why):
        self.pinned.setdefault(why, []).extend(file.digest for file in files)

    def unpin(self, why):
        self.pinned.pop(why, None)

    def keep(self, files, run):
        self.kept.extend(file.digest for file in files)
        self.marked.add(run)

    def release(self, digests, run):
        self.released.extend(digests)

    def release_run(self, run):
        self.released.append(run)
        self.marked.discard(run)

    def runs(self):
        return set(self.marked)


def test_files_are_marked_while_they_are_needed(grid):
    marks = Noted()
    boot(grid, marks=marks)
    writer = Writer(grid)
    grid.machine("w").files.add("d1")
    writer.attach()
    writer.bind("a", inputs=(FileRecord("f", "d1", 10),), sources=("w",))
    until(grid, lambda: writer.of(Started))
    assert list(marks.pinned.values()) == [["d1"]]
    until(grid, lambda: writer.of(Finished))
    assert marks.pinned == {}
    (output,) = writer.of(Finished)[0].ended.outputs
    assert marks.kept == [output.digest]
    writer.tell(Release(RUN, 1, (output.digest,)))
    writer.tell(Release(RUN, 1, over=True))
    wait(grid, 1.0)
    assert marks.released == [output.digest, RUN]


def test_a_run_that_is_over_leaves_nothing_behind(grid):
    grid.duration = lambda job: 5.0 if job.task == "a" else 500.0
    (agent,) = boot(grid)
    writer = Writer(grid)
    writer.attach()
    for task in "abc":
        writer.bind(task)
    until(grid, lambda: writer.of(Finished))
    writer.tell(Release(RUN, 1, over=True))
    wait(grid, 1.0)
    told = len(writer.heard)
    wait(grid, 100.0)
    assert len(writer.heard) == told
    assert (agent.busy, len(agent.outbox), agent.cores_in_use) == (0, 0, 0)
    assert len(grid.started) == 2


def test_a_peer_that_leaves_gives_back_what_has_not_started(grid):
    (agent,) = boot(grid)
    writer = Writer(grid)
    writer.attach()
    for task in "ab":
        writer.bind(task)
    until(grid, lambda: writer.of(Started))
    agent.leave(stop=False)
    writer.bind("c")
    until(grid, lambda: not agent.busy)
    wait(grid, 1.0)
    ends = {(m.task, m.ended.outcome) for m in writer.of(Finished)}
    assert ends == {("b", "cancelled"), ("a", "succeeded")}
    assert "leaving" in writer.of(Refused)[0].reason


def test_what_a_peer_has_is_told_in_pages(grid, monkeypatch):
    monkeypatch.setattr(grid_agent, "PAGE_MAX", 3)
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    for number in range(8):
        writer.bind(f"t{number}")
    until(grid, lambda: writer.of(Started))
    writer.heard.clear()
    writer.tell(Attach(RUN, 1, 2))
    until(grid, lambda: any(m.last for m in writer.of(Attached)))
    pages = writer.of(Attached)
    assert [(m.page, m.last, len(m.under_way)) for m in pages] == [
        (0, False, 3),
        (1, False, 3),
        (2, True, 2),
    ]


def test_an_outbox_that_is_full_takes_no_more_tasks(grid, monkeypatch):
    monkeypatch.setattr(outbox, "REPORTS_OF_RUN_MAX", 2)
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    for task in "ab":
        writer.bind(task)
    until(grid, lambda: len({m.task for m in writer.of(Finished)}) == 2)
    writer.bind("c")
    until(grid, lambda: writer.of(Refused))
    assert "too many reports" in writer.of(Refused)[0].reason
    writer.thank(("a", 1))
    writer.bind("c", attempt=2)
    until(grid, lambda: any(m.task == "c" for m in writer.of(Finished)))


def test_a_report_that_nobody_takes_is_dropped_in_the_end(grid):
    (agent,) = boot(grid)
    writer = Writer(grid)
    writer.attach()
    writer.bind("a")
    until(grid, lambda: writer.of(Finished))
    wait(grid, outbox.AGE_MAX_S + 2 * outbox.RESEND_MAX_S)
    assert len(agent.outbox) == 0
    assert 2000 < len(writer.of(Finished)) < 4000, "about one every five minutes, for a week"


def test_places_of_the_outbox_are_used_again(grid):
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    for number in range(20):
        writer.bind(f"t{number}")
        until(grid, lambda n=number: any(m.task == f"t{n}" for m in writer.of(Finished)))
        writer.thank((f"t{number}", 1))
        wait(grid, 1.0)
    assert grid.machine("p").puts["outbox.places"] == b"1"


def test_a_report_too_long_to_travel_says_so():
    outputs = tuple(FileRecord("x" * 100 + str(i), "d" * 64, 1) for i in range(10_000))
    long = Finished(RUN, "a", 1, JobEnded("succeeded", outputs=outputs))
    short = fitting(long)
    assert short.ended.outcome == "failed"
    assert f"longer than {REPORT_BYTES_MAX >> 10} KiB" in short.ended.reason
    assert fitting(short) is short


def test_reports_are_sent_again_in_groups_so_that_no_queue_overflows(grid):
    boot(grid, cores=4)
    first = Writer(grid)
    first.attach()
    for number in range(300):
        first.bind(f"t{number}", cores=0.01)
    until(grid, lambda: len({m.task for m in first.of(Finished)}) == 300)
    second = Writer(grid, "w2", epoch=2)
    second.attach()
    wait(grid, 0.1)
    assert 0 < len(second.of(Finished)) <= outbox.GROUP_MAX
    until(grid, lambda: len({m.task for m in second.of(Finished)}) == 300, 5.0)


# -- attempts that come again ----------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [0, 1])
def test_a_withdrawn_attempt_that_is_bound_again_runs_once(grid, inputs):
    """It waited for a core, or for its input, when it was withdrawn."""
    grid.duration = lambda job: 10.0
    grid.transfer_s = lambda: 30.0 if inputs else 0.05
    (agent,) = boot(grid)
    writer = Writer(grid)
    writer.attach()
    files = (FileRecord("f", digest_of("user", "f"), 10),) * inputs
    grid.machine("w").files.update(record.digest for record in files)
    writer.bind("first")
    until(grid, lambda: writer.of(Started))
    for epoch in (2, 3):
        writer.bind("a", inputs=files, sources=("w",))
        writer.tell(Withdraw(RUN, "a", 1, epoch=writer.epoch))
        until(grid, lambda e=epoch: len(cancelled(writer)) == e - 1)
        writer.epoch = epoch
        writer.attach()
        wait(grid, 0.1)
    writer.bind("a", inputs=files, sources=("w",))
    until(grid, lambda: any(m.task == "a" and m.key for m in writer.of(Finished)[2:]))
    wait(grid, 100.0)
    assert [job.task for _, _, job in grid.started] == ["first", "a"]
    assert (agent.busy, agent.cores_in_use, agent.waiting) == (0, 0, 0)


def cancelled(writer):
    return [m for m in writer.of(Finished) if m.ended.outcome == "cancelled"]


def test_withdrawn_attempts_leave_room_for_others_to_fetch(grid, monkeypatch):
    monkeypatch.setattr(gathering, "FETCHING_MAX", 2)
    grid.transfer_s = lambda: 1000.0
    boot(grid)
    writer = Writer(grid)
    writer.attach()
    for number in range(6):
        writer.bind(f"t{number}", inputs=(FileRecord("f", f"d{number}", 10),), sources=("w",))
    for number in range(6):
        writer.tell(Withdraw(RUN, f"t{number}", 1, epoch=1))
    until(grid, lambda: len(cancelled(writer)) == 6)
    grid.transfer_s = lambda: 1.0
    grid.machine("w").files.add("d9")
    writer.bind("last", inputs=(FileRecord("f", "d9", 10),), sources=("w",))
    until(grid, lambda: any(m.task == "last" for m in writer.of(Finished)), 20.0)


def test_a_file_on_its_way_is_had_from_whatever_source_any_asker_names(grid):
    grid.transfer_s = lambda: 5.0
    boot(grid, cores=4)
    writer = Writer(grid)
    writer.attach()
    record = FileRecord("f", "d1", 10)
    grid.machine("w").files.add("d1")
    writer.bind("a", inputs=(record,), sources=("gone",))
    wait(grid, 1.0)
    writer.bind("b", inputs=(record,), sources=("gone", "w"))
    until(grid, lambda: {m.task for m in writer.of(Finished)} == {"a", "b"})
    assert writer.of(Refused) == []


def test_each_source_of_a_file_is_asked_once_for_all_who_wait_for_it(grid):
    grid.transfer_s = lambda: 5.0
    boot(grid, cores=4)
    writer = Writer(grid)
    writer.attach()
    record = FileRecord("f", "d1", 10)
    asked = []
    place = grid.machine("p").agents["p/peer"].world
    fetch = place.fetch
    place.fetch = lambda wanted, sources, done: (
        asked.append(sources),
        fetch(wanted, sources, done),
    )
    for number, sources in enumerate([("x",), ("x", "y"), ("y",), ("x",)]):
        writer.bind(f"t{number}", inputs=(record,), sources=sources)
    until(grid, lambda: len(writer.of(Refused)) == 4)
    assert asked == [("x",), ("y",)]


# -- fences ----------------------------------------------------------------------------------------


def test_a_newer_epoch_is_not_obeyed_before_it_has_attached(grid):
    """Its writer has yet to hear what is here: an attempt of the same number may be under way."""
    grid.duration = lambda job: 50.0
    marks = Noted()
    (agent,) = boot(grid, marks=marks)
    first = Writer(grid)
    first.attach()
    first.bind("a")
    until(grid, lambda: first.of(Started))
    newer = Writer(grid, "w2", epoch=2)
    newer.bind("b")
    newer.tell(Withdraw(RUN, "a", 1, force=True, epoch=2))
    wait(grid, 5.0)
    newer.tell(Release(RUN, 2, over=True))
    wait(grid, 5.0)
    assert agent.busy == 1, "what the first writer asked for goes on"
    until(grid, lambda: first.of(Finished))
    newer.thank(("a", 1))
    wait(grid, 5.0)
    assert len(agent.outbox) == 1
    assert [job.task for _, _, job in grid.started] == ["a"]
    assert marks.released == []
    assert newer.heard == []


def attach_runs(grid, names, node="other", epoch=7):
    """Somebody writes a lot of runs."""
    speaker = Writer(grid, node)
    for name in names:
        speaker.tell(Attach(name, epoch, 1))
    wait(grid, 1.0)
    return speaker


@pytest.mark.parametrize("crash", [False, True])
def test_a_run_stays_fenced_however_many_others_there_are(grid, crash):
    boot(grid)
    Writer(grid, "w2", epoch=5).attach()
    attach_runs(grid, [f"run-{number}" for number in range(3000)])
    if crash:
        grid.crash("p")
        grid.restart("p")
    old = Writer(grid, epoch=4)
    old.attach()
    assert [m.epoch for m in old.of(Fenced)] == [5]
    assert old.of(Attached) == []


def test_who_makes_up_runs_crowds_out_its_own(grid, monkeypatch):
    monkeypatch.setattr(writers, "RUNS_MAX", 50)
    boot(grid)
    Writer(grid, "w2", epoch=5).attach()
    flood = attach_runs(grid, [f"run-{number}" for number in range(500)])
    old = Writer(grid, epoch=4)
    old.attach()
    assert [m.epoch for m in old.of(Fenced)] == [5]
    flood.heard.clear()
    flood.tell(Attach("run-499", 6, 1))
    flood.tell(Attach("run-0", 6, 1))
    wait(grid, 1.0)
    assert [m.run for m in flood.of(Fenced)] == ["run-499"]


def test_a_run_of_which_something_is_here_is_never_forgotten(grid, monkeypatch):
    monkeypatch.setattr(writers, "RUNS_MAX", 3)
    monkeypatch.setattr(writers, "FORGET_S", 3600.0)
    grid.duration = lambda job: 10 * 3600.0
    boot(grid)
    Writer(grid, epoch=5).attach()
    writer = Writer(grid, epoch=5)
    writer.bind("a")
    until(grid, lambda: writer.of(Started))
    attach_runs(grid, [f"run-{number}" for number in range(20)], node="w")
    wait(grid, 5 * 3600.0)
    old = Writer(grid, "w2", epoch=4)
    old.attach()
    assert old.of(Fenced)


def test_a_run_that_nobody_spoke_of_for_long_is_forgotten(grid, monkeypatch):
    monkeypatch.setattr(writers, "FORGET_S", 3600.0)
    (agent,) = boot(grid)
    attach_runs(grid, ["x", "y"])
    wait(grid, 3000.0)
    attach_runs(grid, ["y"])
    wait(grid, 2000.0)
    assert not agent._writers.epoch("x")
    assert agent._writers.epoch("y")
    left = [value for key, value in grid.machine("p").puts.items() if key.startswith("writers.")]
    assert len([value for value in left if value]) == 1


def test_what_the_version_before_remembered_is_read(grid):
    before = {"session": 4, "runs": {RUN: {"epoch": 5, "address": "w2/run.r", "over": False}}}
    grid.machine("p").puts["writers"] = msgspec.msgpack.encode(before)
    agents = boot(grid)
    for session in (5, 6):
        assert agents[-1]._writers.session == session
        old = Writer(grid, epoch=4)
        old.attach()
        assert [m.epoch for m in old.of(Fenced)] == [5]
        wait(grid, 1.0)
        grid.crash("p", power=False)
        grid.restart("p")


# -- leases ----------------------------------------------------------------------------------------


def made_something(grid, writer):
    writer.attach()
    writer.bind("a")
    until(grid, lambda: writer.of(Finished))
    writer.thank(("a", 1))


def test_what_is_kept_for_a_run_is_let_go_when_its_writer_is_not_heard_of(grid):
    marks = Noted()
    boot(grid, marks=marks)
    made_something(grid, Writer(grid))
    wait(grid, grid_agent.LEASE_S - 2 * grid_agent.LOOK_S)
    assert marks.marked == {RUN}
    wait(grid, 4 * grid_agent.LOOK_S)
    assert (marks.marked, marks.released) == (set(), [RUN])


@pytest.mark.parametrize("word", [Attach(RUN, 1, 5), Acknowledge(RUN, 1, ())])
def test_a_lease_holds_while_the_writer_is_heard_of(grid, word):
    marks = Noted()
    boot(grid, marks=marks)
    writer = Writer(grid)
    made_something(grid, writer)
    for _ in range(30):
        wait(grid, 86_400.0)
        writer.tell(word)
    wait(grid, 3600.0)
    assert marks.marked == {RUN}


@pytest.mark.parametrize("ahead_s", [0.0, 86_400.0 * 365, -86_400.0 * 365])
def test_a_lease_outlives_a_restart_and_a_clock_that_was_set(grid, ahead_s):
    marks = Noted()
    boot(grid, marks=marks)
    writer = Writer(grid)
    made_something(grid, writer)
    wait(grid, 86_400.0)
    grid.crash("p")
    grid.machine("p").clock_ahead_s = ahead_s
    grid.restart("p")
    wait(grid, 2 * grid_agent.LOOK_S)
    assert marks.marked == {RUN}, "its writer has had no time yet to say anything"
    writer.tell(Attach(RUN, 1, 9))
    wait(grid, 3 * 86_400.0)
    assert marks.marked == {RUN}
    wait(grid, 5 * 86_400.0)
    assert marks.marked == set()


def test_what_is_kept_for_a_run_that_nobody_knows_is_let_go(grid):
    marks = Noted()
    marks.marked.add("of-an-earlier-version")
    boot(grid, marks=marks)
    wait(grid, 2 * grid_agent.LOOK_S)
    assert marks.marked == set()


class LastFirst(Admitting):
    """What came last starts first, while it has a say."""

    def __init__(self, orders):
        self.has_say = orders
        self.asked = 0

    @property
    def orders(self):
        return self.has_say

    def order(self, waiting, now):
        self.asked += 1
        return range(len(waiting))[::-1]


@pytest.mark.parametrize("orders", [True, False])
def test_a_half_that_has_no_say_now_is_not_asked_what_starts_first(grid, orders):
    """To be asked costs time for all that waits, whenever something ends."""
    (agent,) = boot(grid)
    half = LastFirst(orders)
    agent.admit_by(half)
    writer = Writer(grid)
    writer.attach()
    for task in "abc":
        writer.bind(task)
    until(grid, lambda: {m.task for m in writer.of(Finished)} == set("abc"))
    began = list(dict.fromkeys(m.task for m in writer.of(Finished)))
    assert began == (["a", "c", "b"] if orders else ["a", "b", "c"])
    assert bool(half.asked) == orders


def test_a_half_that_says_nothing_of_when_it_has_a_say_is_asked():
    class Always(Admitting):
        def order(self, waiting, now):
            return range(len(waiting))

    class Never(Admitting):
        pass

    assert Always().orders and not Never().orders
