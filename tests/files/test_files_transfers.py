"""Transfers between services over a network in memory: many sources, lies, silence, resuming."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from files_grid import MIB, Grid, Tamper, content, on_grid, put, stored
from net_lab import until

from sureline.peer.files import candidates, schedule
from sureline.peer.files.service import UNKNOWN_SIZE, FetchError
from sureline.peer.files.small import SHORT_BYTES
from sureline.peer.files.wire import (
    AskChunk,
    AskList,
    Buffer,
    Describe,
    Description,
    Question,
    Sent,
    encode,
)
from sureline.peer.tree import TreeEntry, to_manifest
from sureline.workflow.files import FileRecord


def test_what_is_known_to_be_short_is_asked_for_over_the_link_that_is_there(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        digests = []
        for size in (1, SHORT_BYTES, SHORT_BYTES + 1):
            record = await put(a, tmp_path, content(size, size))
            await b.fetch(record, [a.me])
            digests.append(record.digest)
        assert grid.asked_short == set(digests[:2])

    on_grid(tmp_path, story)


def test_a_file_comes_from_the_source_named_and_is_announced(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        digests = []
        for size in (0, 1, MIB, MIB + 1, 5 * MIB + 17):
            data = content(size, size)
            record = await put(a, tmp_path, data)
            got = await b.fetch(record, [a.me])
            assert got.source == a.me
            assert stored(b, got.file) == data
            assert b.cache.store.intact(got.file)
            assert await b.fetch(record) == (got.file, "")
            digests.append(record.digest)
        for digest in digests:
            await until(lambda digest=digest: len(grid.dht.holders[digest]) > 1)
        assert all(grid.dht.holders[digest] == [a.me, b.me] for digest in digests)

    on_grid(tmp_path, story)


def test_without_sources_the_dht_is_asked(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        for size in (100, 3 * MIB):
            record = await put(a, tmp_path, content(size))
            got = await b.fetch(FileRecord("x", record.digest, UNKNOWN_SIZE))
            assert got.source == a.me
            assert stored(b, got.file) == content(size)
        nowhere = FileRecord("x", "ab" * 32, 3 * MIB)
        with pytest.raises(FetchError, match="no node is known to hold abababababababab"):
            await b.fetch(nowhere)
        with pytest.raises(FetchError, match="a does not have it"):
            await b.fetch(FileRecord("x", "ab" * 32, 3), [a.me])

    on_grid(tmp_path, story)


def test_three_who_begin_together_hold_different_parts_and_finish_without_the_source(
    tmp_path: Path,
) -> None:
    """The source dies when it has given about as many chunks as the file has."""

    async def story(grid: Grid) -> None:
        a = grid.node("a")
        others = [grid.node(name) for name in ("b", "c", "d")]
        data = content(60 * MIB)
        record = await put(a, tmp_path, data)
        served = grid.chunks_served.setdefault(a.me, [])

        def watch(node: str, index: int) -> None:
            if len(served) >= 90:
                grid.dead.add(a.me)

        grid.on_chunk = watch
        grid.delay_s[a.me] = 0.02
        got = await asyncio.gather(*(one.fetch(record, [a.me]) for one in others))
        assert all(stored(one, file) == data for one, (file, _) in zip(others, got, strict=True))
        early = served[:30]
        assert len(set(early)) >= 25, "early on, hardly a chunk is given twice"
        from_each_other = sum(len(grid.chunks_served.get(one.me, [])) for one in others)
        assert from_each_other >= 180 - len(served)

    on_grid(tmp_path, story)


def _wrong_chunk(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    if isinstance(question, AskChunk) and question.index % 3 == 1:
        return header, bytes(len(body))
    return header, body


def _short_chunk(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    return header, body[:-1] if isinstance(question, AskChunk) else body


def _noise(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    return b"\xc1noise", b"more noise"


def _wrong_list(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    return header, bytes(len(body)) if isinstance(question, AskList) else body


def _wrong_maps(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    return header, bytes(7) if isinstance(question, Describe) else body


def _huge(question: Question, header: bytes, body: Buffer) -> tuple[bytes, Buffer]:
    if isinstance(question, Describe):
        return encode(Description(1 << 41, bytes(32))), bytes(1 << 16)
    return encode(Sent()), b""


@pytest.mark.parametrize(
    "tamper", [_wrong_chunk, _short_chunk, _noise, _wrong_list, _wrong_maps, _huge]
)
@pytest.mark.parametrize("known", [True, False])
def test_a_liar_is_dropped_and_replaced(tmp_path: Path, tamper: Tamper, known: bool) -> None:
    async def story(grid: Grid) -> None:
        liar, honest, b = grid.node("liar"), grid.node("honest"), grid.node("b")
        data = content(5 * MIB)
        record = await put(liar, tmp_path, data)
        await put(honest, tmp_path, data)
        grid.tamper[liar.me] = tamper
        wanted = record if known else FileRecord("x", record.digest, UNKNOWN_SIZE)
        got = await b.fetch(wanted, [liar.me, honest.me])
        assert stored(b, got.file) == data
        assert got.source == honest.me

    on_grid(tmp_path, story)


@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_a_liar_alone_gives_nothing(tmp_path: Path, size: int) -> None:
    async def story(grid: Grid) -> None:
        liar, b = grid.node("liar"), grid.node("b")
        record = await put(liar, tmp_path, content(size))
        grid.tamper[liar.me] = lambda question, header, body: (header, bytes(len(body)))
        with pytest.raises(FetchError, match="liar"):
            await b.fetch(record, [liar.me])
        assert b.cache.path(record.digest) is None

    on_grid(tmp_path, story)


def test_those_who_agree_on_another_file_are_found_out_at_the_end(tmp_path: Path) -> None:
    """Two liars hold the same altered file under the right name, and give its list of chunks. Only
    the whole shows it; then the honest one is asked for no more than the chunk that differs."""

    async def story(grid: Grid) -> None:
        liars = [grid.node("liar1"), grid.node("liar2")]
        honest, b = grid.node("honest"), grid.node("b")
        data = content(8 * MIB)
        record = await put(honest, tmp_path, data)
        altered = data[: 3 * MIB] + bytes(MIB) + data[4 * MIB :]
        for liar in liars:
            fake = await put(liar, tmp_path, altered)
            _disguise(grid, liar.me, fake.digest)
        got = await b.fetch(record, [liar.me for liar in liars] + [honest.me])
        assert stored(b, got.file) == data
        assert grid.chunks_served[honest.me] == [3]

    on_grid(tmp_path, story)


def _disguise(grid: Grid, node: str, digest: str) -> None:
    """Let a node answer every question as if it had been about another digest."""
    import msgspec

    from sureline.peer.files.wire import decode_question

    service = grid.services[node]
    answer = service.answer

    async def disguised(peer: str, request: bytes) -> tuple[bytes, Buffer]:
        question = msgspec.structs.replace(decode_question(request), digest=digest)
        return await answer(peer, encode(question))

    service.answer = disguised  # type: ignore[method-assign]  # this node lies


def test_a_source_that_hangs_is_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_PATIENCE_S", 0.2)
    monkeypatch.setattr(schedule, "PATIENCE_MIN_S", 0.2)

    async def story(grid: Grid) -> None:
        a, c, b = grid.node("a"), grid.node("c"), grid.node("b")
        data = content(12 * MIB)
        record = await put(a, tmp_path, data)
        await put(c, tmp_path, data)

        def hang(node: str, index: int) -> None:
            if len(grid.chunks_served.get(a.me, ())) == 3:
                grid.hung.add(a.me)

        grid.on_chunk = hang
        got = await b.fetch(record, [a.me, c.me])
        assert got.source == c.me
        assert stored(b, got.file) == data
        small = await put(a, tmp_path, b"small")
        await put(c, tmp_path, b"small")
        assert (await b.fetch(small, [a.me, c.me])).source == c.me

    on_grid(tmp_path, story)


def test_when_nobody_has_the_rest_the_reason_is_told_and_a_later_fetch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "ALONE_S", 0.1)

    async def story(grid: Grid) -> None:
        a, b, c = grid.node("a"), grid.node("b"), grid.node("c")
        data = content(20 * MIB)
        record = await put(a, tmp_path, data)

        def die(node: str, index: int) -> None:
            if len(grid.chunks_served[a.me]) == 10:
                grid.dead.add(a.me)

        grid.on_chunk = die
        grid.dht.withdraw(a.me, record.digest)
        with pytest.raises(FetchError, match=r"no node that holds .* can be used .*a: "):
            await b.fetch(record, [a.me])
        await put(c, tmp_path, data)
        got = await b.fetch(record, [c.me])
        assert stored(b, got.file) == data
        assert len(grid.chunks_served[c.me]) <= 12, "what had come before is not fetched again"

    on_grid(tmp_path, story)


def test_fetches_of_one_content_share_one_transfer(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        data = content(7 * MIB)
        record = await put(a, tmp_path, data)
        grid.delay_s[a.me] = 0.01
        program = FileRecord("p", record.digest, record.size, executable=True)
        first = asyncio.ensure_future(b.fetch(record, [a.me]))
        got = await asyncio.gather(first, b.fetch(program), b.fetch(record, ["nobody@here:9"]))
        assert sorted(grid.chunks_served[a.me]) == list(range(7))
        assert all(stored(b, file) == data for file, _ in got)
        assert got[1].file.executable

    on_grid(tmp_path, story)


def test_a_directory_comes_with_all_that_is_in_it(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        top = tmp_path / "tree"
        (top / "deep" / "empty").mkdir(parents=True)
        (top / "deep" / "big").write_bytes(content(3 * MIB))
        (top / "run").write_bytes(b"#!/bin/sh\n")
        (top / "run").chmod(0o755)
        (top / "link").symlink_to("deep/big")
        for k in range(40):
            (top / f"small{k}").write_bytes(b"%d" % (k // 2))
        record = await a.put(str(top), "tree")
        b.cache.put_bytes(b"3", (await put(a, tmp_path, b"3")).digest, False)
        got = await b.fetch(record, [a.me])
        assert got.file.directory and got.source == a.me
        assert b.cache.store.intact(got.file)
        out = tmp_path / "out"
        b.cache.store.materialise(got.file, str(out))
        assert (out / "deep" / "big").read_bytes() == content(3 * MIB)
        assert (out / "run").stat().st_mode & 0o111
        assert (out / "link").readlink() == Path("deep/big")
        assert (out / "small39").read_bytes() == b"19"
        assert grid.dht.holders[record.digest] == [a.me, b.me]

    on_grid(tmp_path, story)


@pytest.mark.parametrize(
    "entries",
    [
        [TreeEntry("../out", "file", "ab" * 32)],
        [TreeEntry("/etc/x", "file", "ab" * 32)],
        [TreeEntry("a", "link", "/etc"), TreeEntry("a/x", "file", "ab" * 32)],
        [TreeEntry("a", "link", "../..")],
        [TreeEntry("a", "file", "../../x")],
        [TreeEntry("a", "directory"), TreeEntry("a", "file", "ab" * 32)],
    ],
)
def test_a_manifest_that_reaches_out_of_its_directory_is_refused(
    tmp_path: Path, entries: list[TreeEntry]
) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        record = await put(a, tmp_path, to_manifest(entries))
        with pytest.raises(FetchError, match="manifest may not name"):
            await b.fetch(FileRecord("x", record.digest, 0, directory=True), [a.me])

    on_grid(tmp_path, story)


def _damage(blob: Path) -> None:
    """As a bad disk does: the file's time does not tell."""
    status = blob.stat()
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        for chunk in range(status.st_size // MIB):
            file.seek(chunk * MIB)
            file.write(b"damage")
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_damaged_copy_is_found_out_complained_of_and_removed(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, c, b = grid.node("a"), grid.node("c"), grid.node("b")
        data = content(4 * MIB)
        record = await put(a, tmp_path, data)
        await put(c, tmp_path, data)
        _damage(Path(a.cache.store.blob_path(record.digest)))
        asked, fetched = asyncio.Event(), asyncio.Event()
        grid.on_chunk = lambda node, index: asked.set() if node == a.me else None
        answer, complain = c.answer, b._asker.complain

        async def second(asker: str, request: bytes) -> object:
            await asked.wait()  # or the good copy may be fetched whole before a bad piece is seen
            return await answer(asker, request)

        async def later(node: str, digest: str) -> None:
            await fetched.wait()  # a complaint outlives its transfer
            await complain(node, digest)

        c.answer = second  # type: ignore[method-assign, assignment]  # it only waits
        b._asker.complain = later  # type: ignore[method-assign]  # so does it
        got = await b.fetch(record, [a.me, c.me])
        fetched.set()
        assert stored(b, got.file) == data
        # The file goes in a thread, its announcement after that: wait for the later of the two.
        while a.me in grid.dht.holders[record.digest]:  # noqa: ASYNC110 - nobody tells a test
            await asyncio.sleep(0.01)
        assert a.cache.path(record.digest) is None

    on_grid(tmp_path, story)
