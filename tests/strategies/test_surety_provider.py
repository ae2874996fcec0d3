"""The provider's side of the seven calls, beside a real peer agent on a toy network."""

from __future__ import annotations

import pytest
from absurd import Absurd
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_grid import ToyGrid

from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CommandJob
from sureline.peer.messages import (
    Acknowledge,
    Attach,
    Attached,
    Bind,
    Finished,
    Refused,
    Started,
    Withdraw,
)
from sureline.strategies.surety.client.ledger import Spending
from sureline.strategies.surety.contract import Bid, Contract
from sureline.strategies.surety.invocation import (
    Declined,
    EstimateCall,
    Examine,
    Examined,
    Extract,
    Extracted,
    Invoke,
    Invoked,
    Offered,
    Parameters,
    Ready,
    SetParam,
    Setup,
    Terminate,
    Terminated,
)
from sureline.strategies.surety.pricing import Tariff
from sureline.strategies.surety.provider import experience, promises
from sureline.strategies.surety.provider.agent import HAGGLES_MAX, Provider
from sureline.strategies.surety.provider.experience import Experience, spread_of
from sureline.workflow.model import Needs, Takes
from sureline.world.agent import Agent

RUN = "r"
TARIFF = Tariff(3600.0, late_fee=3600.0, cancel_share=0.5, reserve_share=0.1, discount=0.2)
"""A core costs 1 for a second, and gives 1 back for a second of lateness."""
TAKES = Takes(4.0, 5.0, 6.0)


class Client(Agent):
    """A run's writer that deals: says what a test says, and remembers what it hears."""

    def __init__(self, grid, node="c", run=RUN):
        me = f"{node}/run.{run}"
        super().__init__(me, grid.place(me))
        grid.join(self)
        self.grid, self.run, self.heard, self.serial = grid, run, [], 0

    def receive(self, sender, message):
        self.heard.append(message)

    def of(self, kind):
        return [message for message in self.heard if isinstance(message, kind)]

    def say(self, message):
        self.world.send("p/peer", message)

    def ask(self, kind, *args, deal=1, serial=None, **more):
        """The answer to a call."""
        if serial is None:
            self.serial += 1
            serial = self.serial
        before = len(self.heard)
        self.world.send("p/market", kind(self.run, deal, serial, *args, **more))

        def answers():
            found = [m for m in self.heard[before:] if getattr(m, "deal", None) == deal]
            return [m for m in found if m.serial == serial]

        self.grid.run(answers, self.grid.time + 100.0)
        return answers()[0]

    def deal(self, service="k", takes=TAKES, deal=1, **needs):
        """Up to the bid."""
        assert isinstance(self.ask(Setup, service, deal=deal), Ready)
        parameters = Parameters(Needs(**needs), takes=takes)
        assert isinstance(self.ask(SetParam, parameters, deal=deal), Ready)
        return self.ask(EstimateCall, deal=deal)

    def attach(self):
        self.say(Attach(self.run, 1, 1))
        self.grid.run(lambda: self.of(Attached), self.grid.time + 100.0)

    def bind(self, task, contract="", attempt=1, **needs):
        job = CommandJob(f"{task}.{attempt}", task, attempt, task, (), (f"{task}.out",))
        bound = Bind(
            self.run,
            task,
            attempt,
            job,
            Needs(**needs),
            epoch=1,
            strategy="surety",
            claim=contract.encode(),
        )
        self.say(bound)

    def finished(self, task):
        self.grid.run(lambda: any(m.task == task for m in self.of(Finished)), self.grid.time + 1e4)
        return next(m for m in self.of(Finished) if m.task == task)

    def refusal(self, task):
        self.grid.run(lambda: any(m.task == task for m in self.of(Refused)), self.grid.time + 100.0)
        return next(m for m in self.of(Refused) if m.task == task).reason


class Shop:
    """One peer with a provider; `boot` again is a new process."""

    def __init__(self, tariff=TARIFF, cores=2, speed=1.0, took_s=5.0):
        self.grid = ToyGrid()
        self.grid.delay_s = lambda: 0.0
        self.grid.duration = lambda job: took_s
        self.made = (tariff, cores, speed)
        self.grid.boot("p", self.start)

    def start(self):
        tariff, cores, speed = self.made
        self.peer = GridPeerAgent("p/peer", self.grid.place("p/peer"), Capacity(cores, 1000))
        self.provider = Provider("p/market", self.grid.place("p/market"), self.peer, tariff, speed)
        self.peer.admit_by(self.provider)
        for agent in (self.peer, self.provider):
            self.grid.join(agent)
            agent.start()

    def client(self, node="c", run=RUN):
        client = Client(self.grid, node, run)
        client.attach()
        return client

    def wait(self, seconds):
        over = []
        self.grid.after(seconds, lambda: over.append(1))
        self.grid.run(lambda: over, self.grid.time + seconds + 1.0)


def test_from_setup_to_the_result():
    shop = Shop()
    client = shop.client()
    offered = client.deal()
    assert isinstance(offered, Offered)
    assert (offered.bid.cost, offered.bid.time, offered.slots, offered.wait_s) == (5.0, 5.0, 2, 0)
    invoked = client.ask(Invoke, offered.bid, "t", 1)
    assert isinstance(invoked, Invoked) and invoked.bid == offered.bid
    client.bind("t", invoked.contract)
    assert client.finished("t").ended.outcome == "succeeded"
    assert shop.provider.earned == 5.0


def test_bids_are_for_the_machine_that_it_is():
    fast = Shop(speed=2.0).client().deal(cores=2)
    assert (fast.bid.time, fast.bid.cost, fast.slots) == (2.5, 5.0, 1)
    assert Shop(Tariff()).client().deal().bid.cost == 0.0


def test_what_it_has_done_itself_counts_for_more_than_what_it_is_told():
    shop = Shop(cores=4, took_s=20.0)
    client = shop.client()
    assert client.deal().bid.time == 5.0
    for attempt in (1, 2, 3):
        bid = client.ask(EstimateCall).bid
        client.bind("t", client.ask(Invoke, bid, "t", attempt).contract, attempt)
    shop.grid.run(lambda: len(client.of(Finished)) >= 3)
    learned = client.ask(EstimateCall).bid
    assert learned.time == pytest.approx(20.0, rel=0.02)
    assert learned.early < learned.time < learned.late < 40.0
    # Of another kind it only knows what it is told, and that such tellings are too good here.
    assert 5.0 < client.deal("other", deal=2).bid.time <= 20.0
    shop.grid.crash("p", power=False)
    shop.grid.restart("p")
    client.attach()
    assert client.deal().bid.time == pytest.approx(20.0, rel=0.02)


def test_nothing_known_is_a_wide_bid():
    bid = Shop().client().deal(takes=None).bid
    assert bid.late / bid.early >= 100


def test_no_place_is_promised_twice():
    shop = Shop(cores=2, took_s=5.0)
    ours, theirs = shop.client("c"), shop.client("d", "s")
    bid, other = ours.deal().bid, theirs.deal().bid
    assert isinstance(ours.ask(Invoke, bid, "a", 1), Invoked)
    assert isinstance(theirs.ask(Invoke, other, "a", 1), Invoked)
    declined = ours.ask(Invoke, bid, "b", 1)
    assert isinstance(declined, Declined) and "full" in declined.reason
    full = theirs.ask(EstimateCall)
    assert full.slots == 0 and 0 < full.wait_s <= promises.BIND_WITHIN_S + 5.0
    shop.wait(promises.BIND_WITHIN_S + 1.0)  # no Bind came
    assert theirs.ask(EstimateCall).slots == 2
    assert shop.provider.earned == 0.0


@pytest.mark.parametrize("wanted", ["nothing", "unknown", "other task", "other client", "more"])
def test_a_priced_machine_runs_only_what_was_agreed(wanted):
    shop = Shop()
    client = shop.client()
    contract = client.ask(Invoke, client.deal().bid, "t", 1).contract
    match wanted:
        case "nothing":
            client.bind("t")
            assert client.refusal("t") == "p asks a price; agree on a contract first"
        case "unknown":
            client.bind("t", "f" * 16)
            assert "knows of no contract" in client.refusal("t")
        case "other task":
            client.bind("u", contract)
            assert "something else" in client.refusal("u")
        case "other client":
            other = Client(shop.grid, "d")
            other.attach()  # it writes the run now; the contract is not its own
            other.bind("t", contract)
            assert "something else" in other.refusal("t")
        case "more":
            client.bind("t", contract, cores=2)
            assert "more than its contract" in client.refusal("t")
    assert not shop.grid.started
    if wanted != "other client":
        client.bind("t", contract)
        assert client.finished("t").ended.outcome == "succeeded"


def test_a_contract_is_good_for_one_run_of_it():
    shop = Shop()
    client = shop.client()
    contract = client.ask(Invoke, client.deal().bid, "t", 1).contract
    client.bind("t", contract)
    client.bind("t", contract)  # the same, said twice
    client.finished("t")
    client.say(Acknowledge(RUN, 1, (("t", 1),)))
    client.bind("t", contract, attempt=2)
    assert "knows of no contract" in client.refusal("t")
    assert len(shop.grid.started) == 1 and shop.provider.earned == 5.0


def test_a_free_machine_takes_both():
    shop = Shop(Tariff())
    client = shop.client()
    client.bind("a")
    client.bind("b", client.ask(Invoke, client.deal().bid, "b", 1).contract)
    assert {client.finished(task).ended.outcome for task in "ab"} == {"succeeded"}
    assert shop.provider.earned == 0.0


def test_asked_twice_answered_alike():
    shop = Shop()
    client = shop.client()
    bid = client.deal().bid
    first = client.ask(Invoke, bid, "t", 1, serial=70)
    assert client.ask(Invoke, bid, "t", 1, serial=70) == first
    assert client.ask(Invoke, bid, "t", 1, serial=71).contract == first.contract
    assert client.ask(EstimateCall).slots == 1
    gone = client.ask(Terminate, first.contract, serial=80)
    assert gone.refund == 5.0
    assert client.ask(Terminate, first.contract, serial=80).refund == 0.0  # nothing more comes
    assert client.ask(EstimateCall).slots == 2


def test_only_bids_that_stand_can_be_accepted():
    shop = Shop()
    client = shop.client()
    bid = client.deal().bid
    cheaper = Bid("k", "p", 0.01, bid.time, bid.early, bid.late, expires=bid.expires)
    assert isinstance(client.ask(Invoke, cheaper, "t", 1), Declined)
    shop.wait(TARIFF.hold_s + 1.0)
    assert "ask for an estimate" in client.ask(Invoke, bid, "t", 1).reason
    client.ask(SetParam, Parameters(Needs(cores=2), takes=TAKES))
    assert isinstance(client.ask(Invoke, bid, "t", 1), Declined)


def test_calls_out_of_order_are_declined():
    client = Shop().client()
    assert "SETUP" in client.ask(EstimateCall).reason
    client.ask(Setup, "k")
    assert "SETPARAM" in client.ask(EstimateCall).reason
    assert "too small" in client.ask(SetParam, Parameters(Needs(cores=3))).reason
    assert isinstance(client.ask(Invoke, Bid("k", "p", 1, 1, 1, 1), "t", 1), Declined)


@pytest.mark.parametrize(
    "absurd",
    [
        Parameters(Needs(cores=float("nan"))),
        Parameters(input_bytes=-1),
        Parameters(start_in_s=float("inf")),
        Parameters(takes=Takes(5.0, 4.0, 6.0)),
        Parameters(takes=Takes(1.0, 2.0, float("inf"))),
    ],
)
def test_what_cannot_be_meant_is_declined(absurd):
    client = Shop().client()
    client.ask(Setup, "k")
    assert "make sense" in client.ask(SetParam, absurd).reason


def wish(cost):
    return Bid("k", "p", cost, 1.0, 1.0, 1.0)


def test_a_provider_changes_holds_or_withdraws_its_bid():
    shop = Shop()
    client = shop.client()
    own = client.deal().bid
    held = client.ask(EstimateCall, wish(3.0))
    assert held.held and held.bid == own
    changed = client.ask(EstimateCall, wish(4.5))
    assert not changed.held and (changed.bid.cost, changed.bid.time) == (4.5, own.time)
    first = client.ask(Invoke, changed.bid, "a", 1)
    assert first.bid.cost == 4.5
    client.ask(Invoke, own, "b", 1)  # the dearer one stands too
    withdrawn = client.ask(EstimateCall, wish(4.5))
    assert isinstance(withdrawn, Declined) and "full" in withdrawn.reason
    client.ask(Terminate, first.contract)
    assert isinstance(client.ask(Invoke, changed.bid, "c", 1), Declined)  # it was withdrawn


def test_haggling_has_an_end():
    client = Shop().client()
    own = client.deal().bid
    for _ in range(HAGGLES_MAX):
        assert client.ask(EstimateCall, wish(1.0)).held
    assert client.ask(EstimateCall, wish(4.9)).bid == own


def test_a_reservation_holds_a_place_and_is_paid_for():
    shop = Shop(cores=1)
    ours, theirs = shop.client("c"), shop.client("d", "s")
    bid = ours.deal().bid
    reserved = ours.ask(Invoke, bid, serial=50)
    assert ours.ask(Invoke, bid, serial=50).contract == reserved.contract
    assert isinstance(theirs.ask(Invoke, theirs.deal().bid, "x", 1), Declined)
    ours.bind("t", reserved.contract)
    assert "something else" in ours.refusal("t")  # it has not been said what for
    used = ours.ask(Invoke, bid, "t", 2, reserved.contract)
    assert used.contract == reserved.contract
    ours.bind("t", used.contract, attempt=2)
    ours.finished("t")
    assert shop.provider.earned == bid.cost + bid.reserve_fee


def test_a_reservation_that_is_not_used_lapses_and_stays_paid():
    shop = Shop(cores=1)
    client = shop.client()
    bid = client.deal().bid
    assert isinstance(client.ask(Invoke, bid), Invoked)
    shop.wait(TARIFF.hold_s + 1.0)
    assert client.ask(EstimateCall).slots == 1
    assert shop.provider.earned == bid.reserve_fee


def test_without_a_fee_no_place_is_held():
    client = Shop(Tariff(1.0)).client()
    assert "holds no places" in client.ask(Invoke, client.deal().bid).reason


def test_a_late_result_costs_less():
    shop = Shop(took_s=8.0)
    client = shop.client()
    bid = client.deal().bid
    client.bind("t", client.ask(Invoke, bid, "t", 1).contract)
    client.finished("t")
    assert shop.provider.earned == pytest.approx(bid.cost - (8.0 - bid.late))


@pytest.mark.parametrize("way", ["terminate", "withdraw", "whole deal"])
def test_what_is_cancelled_gives_back_a_part(way):
    shop = Shop()
    client = shop.client()
    contract = client.ask(Invoke, client.deal().bid, "t", 1).contract
    client.bind("t", contract)
    shop.grid.run(lambda: client.of(Started))
    if way == "withdraw":
        client.say(Withdraw(RUN, "t", 1, epoch=1))
    else:
        ended = client.ask(Terminate, contract if way == "terminate" else "")
        assert isinstance(ended, Terminated) and ended.refund == 2.5
    assert client.finished("t").ended.outcome == "cancelled"
    assert shop.provider.earned == 2.5
    assert client.deal().slots == 2


def test_a_provider_that_leaves_has_broken_its_contracts():
    shop = Shop()
    client = shop.client()
    client.bind("t", client.ask(Invoke, client.deal().bid, "t", 1).contract)
    shop.grid.run(lambda: client.of(Started))
    shop.peer.leave(stop=True)
    assert client.finished("t").ended.outcome == "cancelled"
    assert shop.provider.earned == 0.0
    assert "leaving" in client.ask(Setup, "k", deal=2).reason


def test_after_a_restart_it_knows_of_no_contract():
    shop = Shop()
    client = shop.client()
    contract = client.ask(Invoke, client.deal().bid, "t", 1).contract
    shop.grid.crash("p")
    shop.grid.restart("p")
    client.attach()
    client.bind("t", contract)
    assert "knows of no contract" in client.refusal("t")


def test_examine_and_extract():
    shop = Shop()
    client = shop.client()
    client.bind("t", client.ask(Invoke, client.deal().bid, "t", 1).contract)
    shop.grid.run(lambda: client.of(Started))
    shop.wait(2.0)
    looked = client.ask(Examine, "t", 1)
    assert isinstance(looked, Examined)
    assert looked.state == "running" and 1.9 < looked.elapsed_s < 2.5
    assert client.ask(Examine, "u", 1).state == "unknown"
    stranger = Client(shop.grid, "d")
    assert stranger.ask(Examine, "t", 1).state == "unknown"  # others hear nothing of our runs
    assert client.ask(Extract, "t", 1) == Extracted(RUN, 1, client.serial, "running")
    client.finished("t")
    told = len(client.of(Finished))
    assert client.ask(Extract, "t", 1).state == "ended"
    shop.grid.run(lambda: len(client.of(Finished)) > told, shop.grid.time + 1.0)
    client.say(Acknowledge(RUN, 1, (("t", 1),)))
    shop.wait(0.1)
    assert client.ask(Extract, "t", 1).state == "unknown"


actions = st.lists(
    st.tuples(
        st.sampled_from(["invoke", "bind", "bind", "withdraw", "terminate", "wait", "estimate"]),
        st.integers(0, 1),  # who
        st.integers(0, 5),  # which task
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(actions, st.floats(1.0, 12.0))
def test_both_sides_come_to_the_same_sums(actions, took_s):
    """Whatever two clients do: no core is promised twice, and what they paid is what it earned."""
    shop = Shop(cores=2, took_s=took_s)
    clients = [shop.client("c", "r"), shop.client("d", "s")]
    bids = [client.deal().bid for client in clients]
    books = [Spending(1000.0), Spending(1000.0)]
    signed: list[dict[str, Contract]] = [{}, {}]
    bound: list[dict[str, float]] = [{}, {}]
    used: list[set[str]] = [set(), set()]

    def settle(who):
        """What is over, by what the peer tells and when."""
        for told in clients[who].of(Finished):
            contract = signed[who].pop(told.task, None)
            if contract is not None:
                done = told.ended.outcome != "cancelled"
                ended_s = took_s if done else shop.grid.time - bound[who][told.task]
                books[who].settle(contract, ended_s, "done" if done else "cancelled")

    for action, who, task in actions:
        client, name = clients[who], f"t{task}"
        if action == "invoke" and name not in used[who]:
            client.ask(Setup, "k")
            answer = client.ask(Invoke, bids[who], name, 1)
            if isinstance(answer, Invoked) and name not in signed[who]:
                contract = Contract(answer.contract, answer.bid, shop.grid.time)
                assert books[who].reserve(answer.bid.cost)
                books[who].sign(contract)
                signed[who][name] = contract
        elif action == "bind" and name in signed[who]:
            client.bind(name, signed[who][name].number)
            bound[who].setdefault(name, shop.grid.time)
            used[who].add(name)
            shop.wait(0.0)
        elif action in ("withdraw", "terminate") and name in bound[who]:
            shop.wait(0.01)  # so that it has started
            if action == "withdraw":
                client.say(Withdraw(client.run, name, 1, epoch=1))
            elif name in signed[who]:
                client.ask(Terminate, signed[who][name].number)
            shop.wait(0.06)
        elif action == "wait":
            shop.wait(3.0)
        elif action == "estimate":
            answer = client.ask(EstimateCall)
            bids[who] = answer.bid if isinstance(answer, Offered) else bids[who]
        assert shop.peer.cores_in_use <= 2
        settle(who)
    shop.wait(200.0)
    for who in (0, 1):
        settle(who)
        for name in [name for name in signed[who] if name not in bound[who]]:
            books[who].settle(signed[who].pop(name), 0.0, "unused")
        assert not signed[who]
    assert sum(book.spent for book in books) == pytest.approx(shop.provider.earned, abs=0.2)
    assert clients[0].deal(deal=9).slots == 2


def test_three_points_hold_the_spread_that_was_observed():
    """Whoever computes (late - early) / 6 in logarithms gets the standard deviation back."""
    import math
    from statistics import NormalDist

    normal = NormalDist(math.log(30.0), 0.3)
    seen = [math.exp(normal.inv_cdf((i + 0.5) / 50)) for i in range(50)]
    points = spread_of(seen)
    sigma = math.log(points.pessimistic_s / points.optimistic_s) / 6
    assert points.likely_s == pytest.approx(30.0, rel=0.01)
    assert 0.28 < sigma < 0.35
    few = spread_of(seen[24:26])
    assert few.pessimistic_s / few.optimistic_s > points.pessimistic_s / points.optimistic_s


def test_what_is_learned_is_bounded(monkeypatch):
    monkeypatch.setattr(experience, "KINDS_MAX", 5)
    grid = ToyGrid()
    world = grid.place("p/market")
    learned = Experience(world)
    for number in range(20):
        for _ in range(3):
            learned.note("c", f"kind{number}", 1.0 + number)
    kept = grid.machine("p").puts
    assert sorted(kept) == [f"market.seen.{place}" for place in range(5)]
    again = Experience(world)
    again.load()
    assert again.knows("c", "kind19") and not again.knows("c", "kind1")
    assert again.expects("c", "kind19", None).likely_s == pytest.approx(20.0)


def test_one_client_cannot_spoil_the_bids_of_another():
    learned = Experience(ToyGrid().place("p/market"), speed=2.0)
    for _ in range(50):
        learned.note("liar", "k", 1e6, Takes(0.001, 0.001, 0.001))
    assert learned.expects("liar", "k", TAKES).likely_s == pytest.approx(1e6)
    assert learned.expects("honest", "k", TAKES).likely_s == 2.5
    assert learned.expects("liar", "other", TAKES).likely_s > 50.0  # its word counts for less


def test_absurd_calls_raise_nothing_and_promise_nothing_twice():
    shop, absurd = Shop(cores=2), Absurd(7)
    clients = [shop.client("c", "run-1"), shop.client("d", "run-1")]
    kinds = [Setup, SetParam, EstimateCall, Invoke, Examine, Extract, Terminate, Bind]
    contracts = 0
    for step in range(1500):
        client = clients[step % 2]
        kind = absurd.random.choice(kinds)
        message = absurd.said(kind, {"deal": 1, "service": "k", "run": "run-1", "epoch": 1})
        client.world.send("p/peer" if kind is Bind else "p/market", message)
        shop.wait(0.01)
        for answer in client.heard:
            absurd.hear(answer)
        contracts += len(client.of(Invoked))
        if client.of(Offered) and absurd.random.random() < 0.5:
            bid = client.of(Offered)[-1].bid
            client.heard.clear()
            client.world.send("p/market", Invoke("run-1", 1, step, bid, f"t{step}", 1))
        assert shop.peer.cores_in_use <= 2
    assert contracts > 10  # else little was tried
