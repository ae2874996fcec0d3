"""The agent of a node: a pilot among the pilots of its site, and, if it is elected, their master.

It says to its master how much room there is, and judges the tasks that the master tells of. The
pilots of a site are a hash table of their own (`kademlia`), over which lists are broadcast; the
membership tells who they are.

The queue makes the first pilot that registers the master of its site; those that come later ask a
pilot who is there already. When a master is gone, the one with the lowest id is master, as all can
see by themselves, and says so to the queue with its first question. Two masters for a while do no
harm: what they say is advice.

Where the queue matches, a pilot asks it directly, each time that it has room.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.overlay.kademlia import Kademlia, KademliaSettings, id_of
from sureline.overlay.membership import Member
from sureline.peer.capacity import is_possible
from sureline.peer.messages import Bind
from sureline.run.port import Host
from sureline.strategies.latebinding.dealing import encoded, merged
from sureline.strategies.latebinding.fetching import cold_bytes
from sureline.strategies.latebinding.half import PilotHalf, PilotRoom
from sureline.strategies.latebinding.judging import best_of, held_bytes, tags_of
from sureline.strategies.latebinding.master import TOPIC, Master
from sureline.strategies.latebinding.messages import (
    AskQueue,
    FileReport,
    Handout,
    Heartbeat,
    JobReport,
    ListedTask,
    NotMaster,
    PromisedTasks,
    Ranked,
    RankReply,
    Register,
    Registered,
    Request,
    RequestAnswer,
    RoomWish,
    TaskList,
    TheQueue,
)
from sureline.strategies.latebinding.queue import PART as QUEUE
from sureline.strategies.latebinding.sense import is_sensible
from sureline.strategies.latebinding.settings import BEST, BUSY_S, LISTED_MAX, QUIET_WISH_S, WISH_S
from sureline.world.address import AgentId, at, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import World

PART = "latebinding"
SITE = "latebinding.site"
SITE_SETTINGS = KademliaSettings(hop_s=1.0, watch_s=0.5, upkeep_s=90.0)
"""Files are found by the table of the grid; this one is for broadcasts."""
QUICK_S = 0.02
LOOK_S = 0.5
"""Members that come and go within this time are looked at together."""
KNOWN_MAX = 4 * LISTED_MAX
FIRST_WISH_S = 1.5
"""A first wish is renewed after so long, the next ones after twice as long each."""
CENTRAL_S = 600.0
"""For so long after it was told to, a pilot asks the queue itself."""
AGAIN_S = 20.0
POLL_S = 45.0
"""So often an idle pilot asks a queue that matches; after AGAIN_S if it had no task that fits."""
REGISTER_S = 3.0
"""So long a pilot waits for a mate's word on who is master before it asks the queue."""
NEWCOMERS_MAX = 64
HEARTBEAT_S = 60.0
HELD_TOLD_MAX = 2000


def is_pilot(member: Member) -> bool:
    return member.state == "alive" and can_run(member)


def can_run(member: Member) -> bool:
    """Whether it is a pilot, or one that is being looked for."""
    return member.offer.cores > 0 and "run" in member.offer.roles


class PilotAgent(Agent):
    def __init__(self, me: AgentId, world: World, host: Host, kademlia: Kademlia) -> None:
        super().__init__(me, world)
        self._host = host
        self._kademlia = kademlia
        self._half: PilotHalf | None = None
        self._site: str | None = None
        self._master: AgentId | None = None
        self.speaks: Master | None = None
        """For the site, if this node is its master."""
        self._known: dict[int, ListedTask] = {}
        self._known_of: tuple[AgentId, int] | None = None
        """Whose tasks they are: the master, and its reign."""
        self._told_s = -QUIET_WISH_S
        """When a list was heard last."""
        self._said = PilotRoom(0, 0)
        self._first_wish_s = FIRST_WISH_S
        self._saying = self._looking = False
        self._queue_order: tuple[bool, str, int] = NO_QUEUE
        self._queue_life = 0
        self._newcomers: list[AgentId] = []
        """Who asked for the master before it was known."""
        self._registered = False
        self._queue: AgentId | None = None
        self._central: AgentId | None = None
        self._central_s = 0.0
        self._tracked = False
        self._asks = False
        kademlia.on_broadcast(TOPIC, self._on_list, merged)
        host.watch(self._on_member)

    def attend(self, half: PilotHalf) -> None:
        """This node's machine runs tasks."""
        self._half = half
        half.on_room, half.on_files, half.on_job = self._say_soon, self._tell_files, self._tell_job
        self.world.after(QUICK_S, self._begin)

    # -- the site --------------------------------------------------------------------------------

    def _begin(self) -> None:
        """As soon as this node is a member; it looks until then."""
        members = self._host.members()
        me = next((m for m in members if m.node == self._host.node), None)
        if me is None:
            self.world.after(1.0, self._begin)
            return
        self._site = me.offer.site
        mates = [m for m in members if m is not me and self._is_mate(m)]
        for member in mates:
            self._kademlia.meet(at(member.node, SITE))
        self._look_for_queue()
        if mates:
            self.world.send(at(self.world.random.choice(mates).node, PART), Register(self._site))
        self.world.after(REGISTER_S if mates else 0.0, self._register)
        self._renew()
        self.world.after(HEARTBEAT_S, self._beat)

    def _on_member(self, member: Member) -> None:
        """Loads change all the time; who comes and goes matters here."""
        if self._site is None:
            return
        gone = member.state in ("dead", "left")
        if gone:
            self._kademlia.went(at(member.node, SITE))
            if self.speaks is not None:
                self.speaks.lost(name_of(member.node))
            if self._master is not None and node_of(self._master) == member.node:
                self._elect()
        elif self._is_mate(member):
            self._kademlia.meet(at(member.node, SITE))
        self._see_queue(member, gone=gone)
        elsewhere = self._hosts_queue(member) if gone else self._hosts_rather(member)
        if elsewhere and not self._looking:
            self._looking = True
            self.world.after(LOOK_S, self._look_for_queue)

    def _see_queue(self, member: Member, *, gone: bool) -> None:
        """A queue that began anew has forgotten what it was asked."""
        if self._hosts_queue(member) and (gone or member.life != self._queue_life):
            self._queue_life, self._asks = member.life, False
            self._say_soon()

    def _hosts_queue(self, member: Member) -> bool:
        return self._queue is not None and node_of(self._queue) == member.node

    def _hosts_rather(self, member: Member) -> bool:
        """Whether the queue may be there rather than where it is."""
        return self._queue is None or (
            not self._hosts_queue(member) and queue_order(member) < self._queue_order
        )

    def _elect(self) -> None:
        """The lowest id, as far as this node sees."""
        pilots = [m.node for m in self._host.members() if self._is_mate(m)]
        if pilots:
            self._follow(at(min(pilots, key=lambda node: id_of(at(node, PART))), PART))

    def _follow(self, master: AgentId) -> None:
        self._master = master
        if self._site is None:
            return
        if master == self.me and self.speaks is None:
            self.speaks = Master(
                self.me, self.world, self._site, self._kademlia, self._the_queue, self._judge
            )
        elif master != self.me and self.speaks is not None:
            self.speaks.close()
            self.speaks = None
        self._said = PilotRoom(0, 0)
        self._say_soon()

    def _register(self) -> None:
        """With the queue: no mate has said who is master."""
        queue = self._the_queue()
        if not self._registered and queue is not None and self._site is not None:
            self.world.send(queue, Register(self._site))

    @handles(Register)
    def _on_register(self, sender: AgentId, asked: Register) -> None:
        """A mate that has just come; whoever does not know tells it later, or the queue does."""
        if self._site is None or asked.site != self._site:
            return
        if self._registered and self._master is not None and self._lives(self._master):
            self.world.send(sender, Registered(asked.site, self._master))
        elif len(self._newcomers) < NEWCOMERS_MAX:
            self._newcomers.append(sender)

    def _renew(self) -> None:
        """Say again what is still wished for; whoever has no master that lives looks for one."""
        quiet = self.world.elapsed() - self._told_s > QUIET_WISH_S
        wait_s = QUIET_WISH_S if quiet and self._registered else WISH_S
        if self._central is not None:
            wait_s = POLL_S
        # At first its master may not be one yet, and not hear it.
        wait_s, self._first_wish_s = min(wait_s, self._first_wish_s), 2 * self._first_wish_s
        self.world.after(wait_s * (0.8 + 0.4 * self.world.random.random()), self._renew)
        if self.world.elapsed() > REGISTER_S:
            self._register()
        if self._master is None or not self._lives(self._master):
            self._elect()
        if quiet or self._said.places:
            self._said = PilotRoom(0, 0)
        self._say()

    def _is_mate(self, member: Member) -> bool:
        return is_pilot(member) and member.offer.site == self._site

    def _lives(self, agent: AgentId) -> bool:
        return self._host.has(node_of(agent))

    @handles(Registered)
    def _on_registered(self, sender: AgentId, said: Registered) -> None:
        if self._follow_if_mate(sender, said.master):
            self._registered = True
            for newcomer in self._newcomers:
                self.world.send(newcomer, said)
            self._newcomers.clear()

    @handles(NotMaster)
    def _on_not_master(self, sender: AgentId, said: NotMaster) -> None:
        self._follow_if_mate(sender, said.master)

    def _follow_if_mate(self, sender: AgentId, master: AgentId) -> bool:
        """Whether a pilot of this site is meant, as a mate says, or the queue."""
        mates = {at(m.node, PART) for m in self._host.members() if self._is_mate(m)}
        is_known = sender == self._queue or sender in mates
        if self._half is None or not is_known or master not in mates:
            return False
        if master != self._master:
            self._follow(master)
        return True

    # -- the queue -------------------------------------------------------------------------------

    def _the_queue(self) -> AgentId | None:
        if self._queue is None:
            self._look_for_queue()
        return self._queue

    def _look_for_queue(self) -> None:
        """It may be elsewhere: who says so in its offer hosts it, else the lowest id."""
        self._looking = False
        members = self._host.members()
        found = queue_of(members)
        if found == self._queue or found is None:
            return
        host = next(m for m in members if m.node == node_of(found))
        self._queue_order, self._queue_life = queue_order(host), host.life
        self._queue, self._asks = found, False
        if self.speaks is not None:
            self.speaks.ask()

    @handles(AskQueue)
    def _on_ask_queue(self, sender: AgentId, asked: AskQueue) -> None:
        queue = self._the_queue()
        if queue is not None:
            self.world.send(sender, TheQueue(queue))

    # -- room ------------------------------------------------------------------------------------

    def _say_soon(self) -> None:
        if not self._saying:
            self._saying = True
            self.world.after(QUICK_S, self._say)

    def _say(self) -> None:
        """Tell the master of more room; that there is less shows in the answer to its list."""
        self._saying = False
        if self._half is None or self._master is None or self._site is None:
            return
        room, said = self._half.room(), self._said
        if self.world.elapsed() - self._central_s > CENTRAL_S:
            self._central = None
        if self._central is not None:
            if room.places:
                self._ask_for_one()
            return
        if room.places > said.places or room.ahead > 2 * said.ahead:
            self.world.send(self._master, RoomWish(self._site, room.places, room.ahead))
        else:
            room = PilotRoom(min(room.places, said.places), min(room.ahead, said.ahead))
        self._said = room

    @handles(RoomWish)
    def _on_wish(self, sender: AgentId, said: RoomWish) -> None:
        if self._site is None or said.site != self._site:
            return
        if self._master == sender != self.me:  # whom we follow follows us: one of us has to speak
            self._follow(self.me)
        elif self.speaks is None and (self._master is None or not self._lives(self._master)):
            self._elect()
        if self.speaks is not None:
            self.speaks.on_wish(sender, said)
        elif self._master is not None:
            self.world.send(sender, NotMaster(self._site, self._master))

    @handles(PromisedTasks)
    def _on_promise(self, sender: AgentId, said: PromisedTasks) -> None:
        if self._half is not None and self._known_of and sender == self._known_of[0]:
            for run, task, needs in said.tasks:
                if is_possible(needs):
                    self._half.promise(run, task, needs)
            # The master has taken it off our wish: it must hear of that room again, however soon.
            self._said = self._half.room()

    # -- rounds ----------------------------------------------------------------------------------

    @handles(Handout)
    def _on_handout(self, sender: AgentId, said: Handout) -> None:
        if self.speaks is not None and sender == self._queue:
            self.speaks.on_handout(said)

    @handles(TaskList)
    def _on_told(self, sender: AgentId, told: TaskList) -> None:
        if not self._believes(told, sender):
            return
        ranked = self._judge(told)
        if ranked is None:
            ranked = Ranked(name_of(self.me), (), 0, 0, 0.0, 0)
        self.world.send(sender, RankReply(told.number, ranked))

    def _on_list(self, origin: AgentId, payload: bytes) -> bytes | None:
        """Of a broadcast."""
        try:
            told = msgspec.msgpack.decode(payload, type=TaskList)
        except msgspec.DecodeError:
            return None
        ranked = self._judge(told) if self._believes(told, origin) else None
        return None if ranked is None else encoded([ranked])

    def _believes(self, told: TaskList, sender: AgentId) -> bool:
        """Whether it is a list of the sender's own, who may speak for this site."""
        node = node_of(told.master)
        if node_of(sender) != node or self._known_of == (told.master, told.reign):
            return node_of(sender) == node
        members = self._host.members()
        return any(m.node == node and can_run(m) and m.offer.site == self._site for m in members)

    def _judge(self, told: TaskList) -> Ranked | None:
        """What this pilot thinks of a list; None if it has no room."""
        half = self._half
        if half is None or self._site is None:
            return None
        self._learn(told)
        room = half.room()
        if told.central is not None:
            self._central, self._central_s = told.central, self.world.elapsed()
            if told.tracked and not self._tracked:
                self.world.send(told.central, FileReport(tuple(half.held)[-HELD_TOLD_MAX:], ()))
            self._tracked = told.tracked
            if room.places:
                self._ask_for_one()
        if not room.places and not (room.ahead and told.ahead):
            return None
        view = half.view(self._site)
        tasks = [(n, self._known[n]) for n in told.open if n in self._known]
        ahead = not room.places
        if ahead:
            tasks = [one for one in tasks if one[1].architecture == "event"]
            if half.fetches():  # one thing at a time
                tasks = [(n, t) for n, t in tasks if not cold_bytes(t, held_bytes(t, view.held))]
        best = best_of(tasks, view, max(BEST, 2 * (room.places + room.ahead)), ahead=ahead)
        return Ranked(
            view.pilot,
            tuple(best),
            room.places,
            room.ahead,
            view.free.millicores / 1000,
            view.free.memory_bytes,
            lacks=any(n not in self._known for n in told.open),
        )

    def _learn(self, told: TaskList) -> None:
        self._told_s = self.world.elapsed()
        if (told.master, told.reign) != self._known_of:
            self._known, self._known_of = {}, (told.master, told.reign)
            if told.master != self._master and self.speaks is None:
                self._master = told.master
            if self._master == told.master:  # it may not know what we have said before
                self._said = PilotRoom(0, 0)
                self._say_soon()
        self._known.update((n, task) for n, task in told.tasks if is_sensible(task))
        if len(self._known) > KNOWN_MAX:
            still = set(told.open)
            self._known = {n: task for n, task in self._known.items() if n in still}

    @handles(RankReply)
    def _on_reply(self, sender: AgentId, said: RankReply) -> None:
        if self.speaks is not None:
            self.speaks.on_reply(sender, said)

    # -- where the queue matches -------------------------------------------------------------------

    def _ask_for_one(self) -> None:
        half, queue = self._half, self._central
        if half is None or queue is None or self._site is None or self._asks:
            return
        self._asks = True
        view = half.view(self._site)
        held = () if self._tracked else tuple(list(half.held)[-HELD_TOLD_MAX:])
        tags = tags_of(view.capacity.tags)
        request = Request(self._site, view.features(0), tags, held, self._tracked)
        self.world.send(queue, request)
        self.world.after(BUSY_S, self._unanswered)  # one that begins anew: at once

    def _unanswered(self) -> None:
        if self._asks:
            self._asks = False
            self._say_soon()

    @handles(RequestAnswer)
    def _on_answer(self, sender: AgentId, said: RequestAnswer) -> None:
        self._asks = False
        if said.more or said.found:
            self._central_s = self.world.elapsed()
        if said.more:
            self.world.after(QUICK_S if said.found else AGAIN_S, self._say)

    def _tell_files(self, made: Sequence[str], gone: Sequence[str]) -> None:
        if self._tracked and self._central is not None:
            self.world.send(self._central, FileReport(tuple(made), tuple(gone)))

    def _tell_job(self, bind: Bind, ended: bool) -> None:
        if self._queue is not None:
            self.world.send(self._queue, JobReport(bind.run, bind.task, ended))

    def _beat(self) -> None:
        self.world.after(HEARTBEAT_S, self._beat)
        if self._central is not None and self._half is not None:
            self.world.send(self._central, Heartbeat())


NO_QUEUE = (True, "", 1 << 200)


def queue_order(member: Member) -> tuple[bool, str, int]:
    """The lowest hosts the queue: of those that offer to the first by name, else the lowest id."""
    if member.offer.extras.get("queue"):
        return (False, member.node, 0)
    return (True, "", id_of(at(member.node, PART)))


def queue_of(members: Sequence[Member]) -> AgentId | None:
    """Where the queue is."""
    able = [
        m for m in members if m.state == "alive" and (is_pilot(m) or m.offer.extras.get("queue"))
    ]
    return at(min(able, key=queue_order).node, QUEUE) if able else None
