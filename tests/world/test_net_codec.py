"""Frames and the codec: whatever arrives, either a message of ours comes out or BadFrameError."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_lab import TYPES, Note, Order

from sureline.world.net.codec import (
    HEADER_BYTES,
    BadFrameError,
    Codec,
    Frames,
    MessageTooLongError,
    body_size,
)
from sureline.world.net.limits import FRAME_BYTES_MAX
from sureline.world.protocol import Message, Unreachable


class Deep(Message, frozen=True, tag="test.deep"):
    numbers: tuple[int, ...] = ()
    names: dict[str, float] = msgspec.field(default_factory=dict)
    blob: bytes = b""
    inner: Deep | None = None
    anything: object = None


CODEC = Codec([*TYPES, Deep])
EXAMPLES = [
    ("mouth", "ear", Note(1, "a" * 40)),
    ("", "peer", Order(2**62)),
    ("a", "b", Deep((1, 2, 3), {"x": 1.5}, b"\0\xff" * 20, Deep(inner=Deep()), [1, {"k": None}])),
]


@pytest.mark.parametrize("envelope", EXAMPLES, ids=lambda envelope: type(envelope[2]).__name__)
def test_what_is_encoded_is_decoded(envelope):
    frame = CODEC.encode(*envelope)
    assert body_size(frame) == len(frame) - HEADER_BYTES
    assert CODEC.decode(memoryview(frame)[HEADER_BYTES:]) == envelope


def test_two_types_with_one_tag_are_refused_by_name():
    class Rival(Message, frozen=True, tag="test.note"):
        pass

    with pytest.raises(ValueError, match=r"Rival and .*Note have the same tag 'test.note'"):
        Codec([Note, Rival])


def test_a_type_without_a_tag_and_one_of_the_world_are_refused():
    class Untagged(Message, frozen=True):
        pass

    with pytest.raises(ValueError, match="Untagged has no tag"):
        Codec([Untagged])
    with pytest.raises(ValueError, match="Unreachable is said by the world itself"):
        Codec([Unreachable])


def test_a_type_that_was_not_given_is_not_encoded_and_not_decoded():
    with pytest.raises(TypeError, match="Deep is not among"):
        Codec([Note]).encode("a", "b", Deep())
    body = memoryview(CODEC.encode("a", "b", Deep()))[HEADER_BYTES:]
    with pytest.raises(BadFrameError):
        Codec([Note]).decode(body)
    said = msgspec.msgpack.encode(("a", "b", Unreachable("x")))
    with pytest.raises(BadFrameError, match=r"world\.unreachable"):
        CODEC.decode(said)


def test_a_message_longer_than_a_frame_is_refused_to_its_sender():
    with pytest.raises(MessageTooLongError, match=r"test\.note of \d+ bytes"):
        CODEC.encode("a", "b", Note(1, "x" * FRAME_BYTES_MAX))


def test_the_length_of_a_part_is_bounded():
    with pytest.raises(BadFrameError):
        CODEC.decode(memoryview(CODEC.encode("a" * 300, "b", Note(1)))[HEADER_BYTES:])


def test_a_frame_of_4_gib_is_refused_by_its_header_alone():
    frames = Frames()
    with pytest.raises(BadFrameError, match="4294967295 bytes"):
        frames.feed(b"\xff\xff\xff\xff")
    assert not frames.incomplete


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
)
def test_frames_come_out_whole_however_they_are_cut(bodies, cuts):
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames = Frames()
    found: list[bytes] = []
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        found += [bytes(view) for view in frames.feed(data[at : at + size])]
        at += size
        turn += 1
    assert found == bodies
    assert not frames.incomplete


def bad_frames(random: Random, count: int) -> int:
    """Feed mutated and random bodies; how many of them were still messages."""
    originals = [bytes(CODEC.encode(*envelope))[HEADER_BYTES:] for envelope in EXAMPLES]
    # Headers of MessagePack that promise much: arrays, maps, texts, binaries, extensions.
    promises = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"]
    promises += [b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\x91" * 2000]
    readable = 0
    for _ in range(count):
        if random.random() < 0.3:
            body = random.randbytes(random.randrange(200))
        else:
            body = mutate(random, random.choice(originals), originals, promises)
        try:
            _, _, message = CODEC.decode(body)
        except BadFrameError:
            continue
        assert isinstance(message, Message)
        readable += 1
    return readable


def mutate(random: Random, body: bytes, originals: list[bytes], promises: list[bytes]) -> bytes:
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(body) + 1)
        match random.randrange(6):
            case 0:
                body = body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
            case 1:
                body = body[:at]
            case 2:
                body = body[:at] + random.choice(promises) + body[at:]
            case 3:
                other = random.choice(originals)
                body = body[:at] + other[random.randrange(len(other)) :]
            case 4:
                body = body[:at] + random.randbytes(random.randrange(1, 8)) + body[at:]
            case 5:
                until = random.randrange(at, len(body) + 1)
                body = body[:until] + body[at:until] + body[until:]
    return body


def bad_streams(random: Random, count: int) -> None:
    """Frames in streams that are cut anywhere, with damaged headers among them."""
    originals = [bytes(CODEC.encode(*envelope)) for envelope in EXAMPLES]
    fed = 0
    while fed < count:
        frames = Frames()
        try:
            for _ in range(50):
                fed += 1
                frame = bytearray(random.choice(originals))
                if random.random() < 0.1:
                    frame[random.randrange(len(frame))] = random.randrange(256)
                cut = random.randrange(len(frame))
                for part in (bytes(frame[:cut]), bytes(frame[cut:])):
                    for body in frames.feed(part):
                        CODEC.decode(body)
        except BadFrameError:
            continue


def test_thousands_of_bad_frames_raise_nothing_else():
    random = Random(20)
    assert 0 < bad_frames(random, 6_000) < 6_000
    bad_streams(random, 2_000)


@pytest.mark.soak
def test_a_million_bad_frames_raise_nothing_else():
    random = Random()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    readable = bad_frames(Random(seed), 1_000_000)
    bad_streams(Random(seed), 250_000)
    print(f"1,250,000 frames, {readable} of the first million still readable")
