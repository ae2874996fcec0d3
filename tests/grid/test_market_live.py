"""A peer that asks a price, in a process of its own: the seven calls over real sockets and TLS."""

from __future__ import annotations

import asyncio

import pytest
from grid_lab import GRID, GridLab
from signed import papers_of_home

from sureline.compose.node import grid_loop, open_node
from sureline.peer.jobs import CommandJob
from sureline.peer.messages import Attach, Attached, Bind, Finished, Refused
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
from sureline.workflow.model import Needs, Takes
from sureline.world.address import at
from sureline.world.agent import Agent

TERMS = ("--price", "3600", "--late-fee", "7200", "--cancel-fee", "0.5", "--discount", "0.2")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with GridLab(tmp_path_factory.mktemp("lab")) as made:
        made.start(1, *TERMS)
        yield made


class Client(Agent):
    """Says what a test says; `ask` waits for the answer of the kind that fits."""

    def __init__(self, me, world, provider):
        super().__init__(me, world)
        self.provider, self.serial = provider, 0
        self.heard: asyncio.Queue = asyncio.Queue()

    def receive(self, sender, message):
        self.heard.put_nowait(message)

    async def hear(self, *kinds):
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(message := await self.heard.get(), kinds):
                pass
        return message

    async def ask(self, kind, *args, **more):
        self.serial += 1
        call = kind("r", 1, self.serial, *args, **more)
        self.world.send(at(self.provider, "market"), call)
        while True:
            answers = (Ready, Declined, Offered, Invoked, Examined, Extracted, Terminated)
            answer = await self.hear(*answers)
            if answer.serial == self.serial:
                return answer

    async def bind(self, task, command, contract=""):
        job = CommandJob(f"{task}.1", task, 1, command)
        bind = Bind("r", task, 1, job, Needs(), epoch=1, strategy="surety", claim=contract.encode())
        self.world.send(at(self.provider, "peer"), bind)
        return await self.hear(Finished, Refused)


async def deal_with(provider):
    async with open_node(GRID) as node:
        me = at(node.id, "run.r")
        client = Client(me, node.world.place(me), provider)
        node.world.join(client)
        papers = papers_of_home(node.credentials, "r")
        client.world.send(at(provider, "peer"), Attach("r", 1, 1, papers))
        await client.hear(Attached)

        refused = await client.bind("t", "true")
        assert isinstance(refused, Refused) and "asks a price" in refused.reason

        assert isinstance(await client.ask(Setup, "k"), Ready)
        parameters = Parameters(Needs(), takes=Takes(1.0, 2.0, 3.0))
        assert isinstance(await client.ask(SetParam, parameters), Ready)
        offered = await client.ask(EstimateCall)
        assert (offered.bid.cost, offered.bid.late_fee, offered.slots) == (2.0, 2.0, 1)
        granted = await client.ask(EstimateCall, client_wish(offered.bid, 1.7))
        assert granted.bid.cost == 1.7 and not granted.held

        invoked = await client.ask(Invoke, granted.bid, "u", 1)
        finished = await client.bind("u", "echo paid", invoked.contract)
        assert isinstance(finished, Finished) and finished.ended.outcome == "succeeded"
        assert (await client.ask(Examine, "u", 1)).state == "ended"
        assert (await client.ask(Extract, "u", 1)).state == "ended"
        assert (await client.hear(Finished)).task == "u"  # told again

        invoked = await client.ask(Invoke, granted.bid, "v", 1)
        full = await client.ask(Invoke, granted.bid, "w", 1)
        assert isinstance(full, Declined) and "full" in full.reason
        ended = await client.ask(Terminate, invoked.contract)
        assert isinstance(ended, Terminated) and ended.refund == 1.7


def client_wish(bid, cost):
    return type(bid)(bid.service, bid.provider, cost, bid.time, bid.early, bid.late)


def test_the_seven_calls_over_a_network(lab, monkeypatch):
    monkeypatch.setenv("SURELINE_HOME", str(lab.home("p0")))
    with grid_loop() as loop:
        loop.run(deal_with(lab.peers["p0"].ready()["node"]))


def test_what_it_asks_is_told(lab):
    assert lab.peers["p0"].ready()["price"] == 3600.0
    assert lab.present()["p0"]["price"] == 3600.0
    said = lab.do("p0", "peers")
    assert "PRICE" in said.out and " 3600 " in said.out


@pytest.mark.parametrize(
    "terms, told",
    [
        (("--price", "-1"), "--price -1 is not an amount of money"),
        (("--price", "1", "--late-fee", "nan"), "--late-fee nan is not an amount of money"),
        (("--price", "1", "--cancel-fee", "2"), "--cancel-fee 2 is not a share"),
        (("--cancel-fee", "0.5"), "give one with --price"),
    ],
)
def test_senseless_prices_are_refused(lab, terms, told):
    said = lab.do("p0", "peer", *terms)
    assert said.code == 2 and told in said.err
