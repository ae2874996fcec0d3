"""Enrolment over real sockets, with the real transport, and those who try to abuse it."""

from __future__ import annotations

import asyncio
import logging
import ssl

import msgspec
import pytest
from grids import NOWHERE, new_grid

from sureline.world.identity import certificates, joining
from sureline.world.identity import enrolment_wire as wire
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.enrolment import EnrolmentDesk
from sureline.world.identity.errors import EnrolmentError, IdentityError
from sureline.world.identity.home import GridHome
from sureline.world.identity.joining import enrol
from sureline.world.net.codec import Codec
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Message


class Nothing(Message, frozen=True, tag="test.nothing"):
    pass


@pytest.fixture
def authority(tmp_path):
    return new_grid(tmp_path / "issuer")


class Issuer:
    """A peer in the home of the authority, which answers enrolments."""

    def __init__(self, authority, contacts=()):
        self.authority = authority
        self.credentials = Credentials.load(authority.home)
        self.desk = EnrolmentDesk(authority, self.credentials, lambda: contacts)

    async def __aenter__(self):
        self.transport = await listen(self.credentials, self.desk.answer)
        self.address = self.transport.node.partition("@")[2]
        return self

    async def __aexit__(self, *_):
        await self.transport.close()

    def invite(self, **options):
        return self.authority.invite(**{"expires_s": 60, "addresses": [self.address], **options})


async def listen(credentials, on_stranger, port=0):
    return await NetTransport.listen(
        asyncio.get_running_loop(),
        "127.0.0.1",
        port,
        credentials,
        Codec([Nothing]),
        on_stranger=on_stranger,
    )


def run(work):
    return asyncio.run(asyncio.wait_for(work, 30))


def refusal(work) -> str:
    with pytest.raises(EnrolmentError) as caught:
        run(work)
    return str(caught.value)


def but(invitation, **changes):
    return msgspec.structs.replace(invitation, **changes)


def test_a_machine_joins_and_is_a_peer(authority, tmp_path):
    async def work():
        async with Issuer(authority, ("lab9@10.0.0.9:7733",)) as issuer:
            joined = await enrol(tmp_path / "new", issuer.invite(roles=["run"]), "lab7")
            there, here = issuer.credentials, joined
            assert there.refused(there.identify(here.certificate_der)) is None
            return joined

    joined = run(work())
    assert (joined.grid, joined.name, joined.identity.roles) == ("lab", "lab7", {"run"})
    assert joined.home.contacts() == ("lab9@10.0.0.9:7733",)
    assert joined.home.doors()[0] == "lab9@10.0.0.9:7733"
    assert joined.home.doors()[1].startswith("issuer@127.0.0.1:")
    assert not joined.home.holds_authority
    again = Credentials.load(GridHome.open("lab", tmp_path / "new"))
    assert again.identity == joined.identity
    assert sorted(path.name for path in (tmp_path / "new" / "grids").iterdir()) == [".lock", "lab"]
    assert "KEY" not in (joined.home.path / "ca.crt").read_text()


def test_the_key_never_leaves_the_machine_that_made_it(authority, tmp_path, monkeypatch):
    questions = []
    real = wire.write_question

    def noting(*args):
        questions.append(real(*args))
        return questions[-1]

    monkeypatch.setattr(wire, "write_question", noting)

    async def work():
        async with Issuer(authority) as issuer:
            return await enrol(tmp_path / "new", issuer.invite(), "lab7")

    joined = run(work())
    key = certificates.read_key(joined.home.credentials_path.read_bytes())
    secret = key.private_numbers().private_value.to_bytes(32, "big")
    assert len(questions) == 1 and secret not in questions[0]


def test_many_machines_of_one_name_join_at_once(authority, tmp_path):
    async def work():
        async with Issuer(authority) as issuer:
            return await asyncio.gather(
                *(enrol(tmp_path / str(i), issuer.invite(), "lab7") for i in range(12))
            )

    names = {joined.name for joined in run(work())}
    assert names == {"lab7"} | {f"lab7-{number}" for number in range(2, 13)}


def test_it_waits_until_the_issuer_is_up(authority, tmp_path):
    async def work():
        credentials = Credentials.load(authority.home)
        desk = EnrolmentDesk(authority, credentials)
        first = await listen(credentials, desk.answer)
        address = first.node.partition("@")[2]
        await first.close()
        invitation = authority.invite(expires_s=60, addresses=[address])
        told = asyncio.Event()
        sentences = []

        def progress(sentence):
            sentences.append(sentence)
            told.set()

        joining_now = asyncio.ensure_future(
            enrol(tmp_path / "new", invitation, "lab7", on_progress=progress)
        )
        await told.wait()
        second = await listen(credentials, desk.answer, int(address.rpartition(":")[2]))
        try:
            return (await joining_now).name, sentences
        finally:
            await second.close()

    name, sentences = run(work())
    assert name == "lab7"
    assert "nobody listens there yet" in sentences[0]


def test_it_gives_up_in_time_and_may_be_repeated(authority, tmp_path):
    invitation = authority.invite(expires_s=60, addresses=[NOWHERE])
    sentence = refusal(enrol(tmp_path / "new", invitation, "lab7", timeout_s=0.3))
    assert NOWHERE in sentence and "sureline peer --grid lab" in sentence

    async def work():
        async with Issuer(authority) as issuer:
            found = but(invitation, addresses=(NOWHERE, issuer.address))
            return await enrol(tmp_path / "new", found, "lab7")

    assert run(work()).name == "lab7"


def test_a_lost_answer_costs_nothing(authority, tmp_path):
    """The issuer has admitted the machine, but the answer never arrived: asking again gives the
    same certificate, and the invitation is not wasted."""

    async def work():
        async with Issuer(authority) as issuer:
            lost = []

            async def losing(question, address):
                answer = await issuer.desk.answer(question, address)
                if not lost:
                    lost.append(answer)
                    raise ConnectionError("lost")
                return answer

            other = await listen(issuer.credentials, losing)
            try:
                invitation = issuer.invite(addresses=[other.node.partition("@")[2]])
                joined = await enrol(tmp_path / "new", invitation, "lab7")
            finally:
                await other.close()
            return joined, lost

    joined, lost = run(work())
    assert len(lost) == 1 and joined.name == "lab7"
    assert [peer.name for peer in authority.peers()] == ["issuer", "lab7"]


def test_joining_again_with_the_same_invitation_is_all_right(authority, tmp_path):
    async def work():
        async with Issuer(authority) as issuer:
            invitation = issuer.invite()
            first, second = await asyncio.gather(
                enrol(tmp_path / "new", invitation, "lab7"),
                enrol(tmp_path / "new", invitation, "lab7"),
            )
            return first, second, invitation

    first, second, invitation = run(work())
    assert first.identity == second.identity
    third = run(enrol(tmp_path / "new", invitation, "lab7", timeout_s=0.1))
    assert third.identity == first.identity


def test_a_home_that_is_in_the_grid_needs_no_second_invitation(authority, tmp_path):
    async def work():
        async with Issuer(authority) as issuer:
            await enrol(tmp_path / "new", issuer.invite(), "lab7")
            await enrol(tmp_path / "new", issuer.invite(), "lab7")

    with pytest.raises(IdentityError, match="already, as lab7"):
        run(work())


def test_a_revoked_home_can_be_invited_again_under_a_new_name(authority, tmp_path):
    async def work():
        async with Issuer(authority) as issuer:
            first = await enrol(tmp_path / "new", issuer.invite(), "lab7")
            first.adopt(authority.revoke("lab7"))
            return await enrol(tmp_path / "new", issuer.invite(), "lab7")

    joined = run(work())
    assert joined.name == "lab7-2"
    assert joined.refused(joined.identity) is None
    assert joined.revocations.names == {"lab7"}


def test_a_new_peer_knows_who_is_out_from_the_start(authority, tmp_path):
    async def work():
        async with Issuer(authority) as issuer:
            bad = await enrol(tmp_path / "bad", issuer.invite(), "bad")
            authority.revoke("bad")
            good = await enrol(tmp_path / "good", issuer.invite(), "good")
            return good.refused(bad.identity)

    assert run(work()) == "peer bad has been revoked"


# Those who try to abuse it.


def test_an_expired_invitation_is_refused(authority, tmp_path, caplog):
    async def work():
        async with Issuer(authority) as issuer:
            invitation = issuer.invite(expires_s=0.001)
            await asyncio.sleep(0.01)
            await enrol(tmp_path / "new", invitation, "lab7")

    assert "expired" in refusal(work())
    assert "has expired" in caplog.text
    assert not list((tmp_path / "new" / "grids").glob("[!.]*"))


def test_an_invitation_stolen_after_its_use_is_worth_nothing(authority, tmp_path, caplog):
    async def work():
        async with Issuer(authority) as issuer:
            invitation = issuer.invite()
            await enrol(tmp_path / "new", invitation, "lab7")
            await enrol(tmp_path / "thief", invitation, "lab7")

    assert "used by another machine" in refusal(work())
    assert "has been used by lab7" in caplog.text
    assert [peer.name for peer in authority.peers()] == ["issuer", "lab7"]


@pytest.mark.parametrize("address", ["a..b:1", f"{'x' * 70}.example:1", "no.such.invalid:1"])
def test_a_host_that_cannot_be_is_no_crash(authority, tmp_path, address):
    invitation = authority.invite(expires_s=60, addresses=[address])
    assert address in refusal(enrol(tmp_path / "new", invitation, "lab7", timeout_s=0.1))


@pytest.mark.parametrize("change", [{"secret": bytes(24)}, {"id": bytes(12)}])
def test_a_forged_invitation_is_refused_without_saying_what_is_wrong(
    authority, tmp_path, caplog, change, monkeypatch
):
    """Nothing of the body is parsed."""
    monkeypatch.setattr(certificates, "requested_key", None)

    async def work():
        async with Issuer(authority) as issuer:
            await enrol(tmp_path / "new", but(issuer.invite(), **change), "lab7")

    assert "does not know this invitation" in refusal(work())
    assert "unknown or altered invitation" in caplog.text


def test_hammering_gives_few_lines_in_the_log(authority, tmp_path, caplog):
    async def work():
        async with Issuer(authority) as issuer:
            for number in range(20):
                forged = but(issuer.invite(), secret=bytes(24))
                with pytest.raises(EnrolmentError):
                    await enrol(tmp_path / str(number), forged, "lab7")

    with caplog.at_level(logging.INFO):
        run(work())
    assert len([r for r in caplog.records if "enrolment" in r.getMessage()]) == 1


@pytest.mark.parametrize("junk", [b"", b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"SLEQ" * 99])
def test_who_does_not_ask_to_enrol_gets_no_answer(authority, junk):
    async def work():
        async with Issuer(authority) as issuer:
            host, _, port = issuer.address.rpartition(":")
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=joining._stranger_context()
            )
            writer.write(len(junk).to_bytes(4, "big") + junk)
            try:
                answer = await reader.read()
            except ConnectionError:
                answer = b""
            writer.transport.abort()
            joined = issuer.invite()
            return answer, joined

    answer, _ = run(work())
    assert answer == b""


def test_a_question_altered_on_the_way_is_refused(authority):
    """Each byte counts: of the header, the body and the channel."""
    credentials = Credentials.load(authority.home)
    desk = EnrolmentDesk(authority, credentials)
    invitation = authority.invite(expires_s=60, addresses=[NOWHERE])
    binding = wire.binding_of(credentials.certificate_der)
    request = wire.EnrolmentRequest(certificates.new_request(certificates.new_key()), "lab7")
    body = msgspec.msgpack.encode(request)
    question = wire.write_question(invitation.id, invitation.secret, binding, body)

    async def code(data):
        return wire.read_answer(await desk.answer(data, "test")).code

    async def work():
        for place in range(0, len(question), 7):
            altered = bytearray(question)
            altered[place] ^= 1
            try:
                assert await code(bytes(altered)) is wire.EnrolmentCode.UNKNOWN, place
            except wire.WireError:
                assert place < 24
        elsewhere = wire.binding_of(b"another certificate")
        other = wire.write_question(invitation.id, invitation.secret, elsewhere, body)
        assert await code(other) is wire.EnrolmentCode.UNKNOWN
        assert await code(question) is wire.EnrolmentCode.WELCOME

    run(work())


def test_a_request_of_the_wrong_kind_is_refused_and_does_not_use_up_the_invitation(
    authority, tmp_path
):
    credentials = Credentials.load(authority.home)
    desk = EnrolmentDesk(authority, credentials)
    invitation = authority.invite(expires_s=60, addresses=[NOWHERE])
    binding = wire.binding_of(credentials.certificate_der)
    signing = certificates.new_request(certificates.new_key())

    async def ask(body):
        question = wire.write_question(invitation.id, invitation.secret, binding, body)
        return wire.read_answer(await desk.answer(question, "test")).code

    async def work():
        for request in (
            wire.EnrolmentRequest(b"junk", "lab7"),
            wire.EnrolmentRequest(signing, "../../etc"),
            wire.EnrolmentRequest(signing, ""),
        ):
            assert await ask(msgspec.msgpack.encode(request)) is wire.EnrolmentCode.UNFIT
        assert await ask(b"\xc1") is wire.EnrolmentCode.UNFIT
        assert (
            await ask(msgspec.msgpack.encode(wire.EnrolmentRequest(signing, "ok")))
            is wire.EnrolmentCode.WELCOME
        )

    run(work())


class Middle:
    """A man in the middle: ends TLS with a certificate of his own, and passes on what he reads."""

    def __init__(self, issuer_address, certificate_path):
        self.issuer = issuer_address
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate_path)
        self.seen = bytearray()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.relay, "127.0.0.1", 0, ssl=self.context)
        self.address = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def relay(self, reader, writer):
        host, _, port = self.issuer.rpartition(":")
        to_issuer = await asyncio.open_connection(host, int(port), ssl=joining._stranger_context())
        size = await reader.readexactly(4)
        question = await reader.readexactly(int.from_bytes(size, "big"))
        to_issuer[1].write(size + question)
        answer = await to_issuer[0].read()
        self.seen += answer
        writer.write(answer)
        await writer.drain()
        writer.close()
        to_issuer[1].transport.abort()


def test_a_man_in_the_middle_gets_nobody_in(authority, tmp_path):
    """Even one who is a peer of another grid of the same name."""
    other = new_grid(tmp_path / "other")

    async def work():
        async with (
            Issuer(authority) as issuer,
            Middle(issuer.address, other.home.credentials_path) as middle,
        ):
            invitation = issuer.invite(addresses=[middle.address])
            with pytest.raises(EnrolmentError, match="does not know this invitation"):
                await enrol(tmp_path / "new", invitation, "lab7")
            assert middle.seen
            direct = but(invitation, addresses=(issuer.address,))
            return await enrol(tmp_path / "new", direct, "lab7")

    assert run(work()).name == "lab7"


def test_an_issuer_of_another_grid_with_the_same_secret_is_not_believed(authority, tmp_path):
    """Were the secret known to another: the CA's fingerprint still decides."""

    async def work():
        async with Issuer(authority) as issuer:
            wrong = but(issuer.invite(), fingerprint=bytes(32))
            await enrol(tmp_path / "new", wrong, "lab7")

    assert "not of the grid to which the invitation invites" in refusal(work())
    assert not list((tmp_path / "new" / "grids").glob("[!.]*"))


def test_an_answer_without_proof_is_not_believed(authority, tmp_path):
    """An impostor who cannot know the secret answers with a welcome, or with a refusal."""

    async def work(code):
        async def lying(question, address):
            return wire.write_answer(code, bytes(24), bytes(32), bytes(32), b"")

        impostor = await listen(Credentials.load(authority.home), lying)
        try:
            address = impostor.node.partition("@")[2]
            invitation = authority.invite(expires_s=60, addresses=[address])
            await enrol(tmp_path / "new", invitation, "lab7")
        finally:
            await impostor.close()

    for code in (wire.EnrolmentCode.WELCOME, wire.EnrolmentCode.USED):
        assert "not the issuer, but pretends" in refusal(work(code))


def test_another_grid_of_the_same_name_does_not_replace_the_first(authority, tmp_path):
    other = new_grid(tmp_path / "other")
    invitation = other.invite(expires_s=60, addresses=[NOWHERE])
    with pytest.raises(IdentityError, match="another grid that is called 'lab'"):
        run(enrol(tmp_path / "issuer", invitation, "lab7"))
    assert Credentials.load(authority.home).name == "issuer"
