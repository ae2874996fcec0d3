"""Peers that are up to no good, made from our own: an honest one changed in one thing each.

They run in the toy grid, and as real processes: `python malice.py KIND peer ...` is `sureline peer
...` with such an agent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sureline.peer import grid_agent
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.messages import (
    Attach,
    Attached,
    Fenced,
    Finished,
    Progressed,
    Refused,
    Started,
)
from sureline.workflow.files import FileRecord
from sureline.world.address import name_of
from sureline.world.agent import handles

NOWHERE = "d0" * 32
FLOOD = 200
TASKS = [f"t{number}" for number in range(40)]


def forged_outputs(bind, digest=NOWHERE):
    outputs = bind.job.outputs if isinstance(bind.job, CommandJob) else ()
    return tuple(FileRecord(path, digest, 10) for path in outputs)


class Boaster(GridPeerAgent):
    """Says at once that all is done, and has nothing of it."""

    digest = NOWHERE

    def _admit(self, key, bind):
        ended = JobEnded("succeeded", 0, outputs=forged_outputs(bind, self.digest))
        self.outbox.add(Finished(*key, ended, bind.key, None, bind.warrant))


class Garbler(Boaster):
    """Names what it made by digests that are none."""

    digest = "../../../etc/passwd"


class Idler(GridPeerAgent):
    """Takes all that it is given, says that it begins, and does nothing."""

    def _start(self, key, task):
        task.started = True
        self._say(Started(*key, None, task.bind.warrant))


class Claimer(GridPeerAgent):
    """Says that every task is under way here, or done, whatever was given to it."""

    def _tell(self, run, to, serial):
        under_way = tuple((task, 1, True, b"x" * 16) for task in TASKS[::2])
        reports = tuple((task, 2, b"") for task in TASKS[1::2])
        told = Attached(
            run,
            self._writers.epoch(run),
            serial,
            self._writers.session,
            0,
            True,
            under_way,
            reports,
        )
        self.world.send(to, told)


class Forger(GridPeerAgent):
    """Reports results of everything that others are given, under every number, with keys that it
    knows from elsewhere."""

    keys: dict[str, str] = {}  # noqa: RUF012 - one for all of a test

    @handles(Attach)
    def on_attach(self, sender, message):
        super().on_attach(sender, message)
        self.forge(sender, message.run)

    def forge(self, to, run):
        for task, key in self.keys.items():
            for attempt in (1, 2, 3):
                outputs = (FileRecord(f"f{task[1:]}", NOWHERE, 10),)
                ended = JobEnded("succeeded", 0, outputs=outputs)
                for warrant in (b"", b"0" * 16):
                    self.world.send(to, Finished(run, task, attempt, ended, key, None, warrant))
        self.world.after(0.5, lambda: self.forge(to, run))


class Chatterer(GridPeerAgent):
    """Tells of progress without end."""

    def _start(self, key, task):
        super()._start(key, task)
        self.chatter(key)

    def chatter(self, key):
        task = self._tasks.get(key)
        if task is not None:
            for number in range(FLOOD):
                self._say(Progressed(*key, number / FLOOD, task.bind.warrant))
            self.world.after(0.05, lambda: self.chatter(key))


class Usurper(GridPeerAgent):
    """Says again and again that the run was taken over."""

    @handles(Attach)
    def on_attach(self, sender, message):
        super().on_attach(sender, message)
        self.usurp(sender, message.run, message.epoch)

    def usurp(self, to, run, epoch):
        for more in (1, 1000):
            self.world.send(to, Fenced(run, epoch + more))
        self.world.after(0.5, lambda: self.usurp(to, run, epoch))


class Refuser(GridPeerAgent):
    """Offers everything, and refuses all that it is given."""

    def _objection(self, bind):
        return "not today"


class Lacker(GridPeerAgent):
    """Says that it can get none of the inputs, which are there."""

    def _admit(self, key, bind):
        missing = tuple(record.digest for record in bind.job.inputs)
        self._say(Refused(*key, "cannot get them", missing, bind.warrant))


KINDS = {
    kind.__name__.lower(): kind
    for kind in (
        Boaster,
        Garbler,
        Idler,
        Claimer,
        Chatterer,
        Usurper,
        Refuser,
        Lacker,
    )
}


def main() -> None:
    from sureline.assembly import peer
    from sureline.cli.entry import main as sureline

    kind = sys.argv.pop(1)
    assert peer.GridPeerAgent is grid_agent.GridPeerAgent, "the one that peers are made of"
    if kind == "deaf":
        go_deaf(Path("deaf.cut"))
    else:
        peer.GridPeerAgent = KINDS[kind]
    sys.exit(sureline())


def go_deaf(cut: Path) -> None:
    """While there is such a file, nothing goes to or comes from drivers and other guests, as if the
    network were cut between them and this peer alone."""
    from sureline.peer.files.serving import Server
    from sureline.world.net.bulk_wire import BulkError
    from sureline.world.net.transport import NetTransport

    def is_cut(address: str) -> bool:
        return "+" in name_of(address) and cut.exists()

    send, took, ask_bulk, answer = (
        NetTransport.send,
        NetTransport.took,
        NetTransport.ask_bulk,
        Server.answer,
    )

    def deaf_send(self, to, sender, message):
        if not is_cut(to):
            send(self, to, sender, message)

    def deaf_took(self, link, sender_part, to_part, message):
        if not is_cut(link.node):
            took(self, link, sender_part, to_part, message)

    async def deaf_ask_bulk(self, node, request, into=None):
        if is_cut(node):
            await asyncio.sleep(10)
            raise BulkError("nothing comes through")
        return await ask_bulk(self, node, request, into)

    async def deaf_answer(self, asker, request):
        while is_cut(asker):  # noqa: ASYNC110 - a file, not an event
            await asyncio.sleep(1)
        return await answer(self, asker, request)

    NetTransport.send, NetTransport.took = deaf_send, deaf_took
    NetTransport.ask_bulk, Server.answer = deaf_ask_bulk, deaf_answer


if __name__ == "__main__":
    main()
