"""A node's memory: visible at once, there after a restart once synced, and errors are heard."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from sureline.compose.peer_memory import Keep, KeepError


async def synced(keep: Keep) -> None:
    done = asyncio.get_running_loop().create_future()
    keep.sync(lambda: done.set_result(None))
    await asyncio.wait_for(done, 30)


def in_loop(action):
    return asyncio.run(action())


def test_what_was_put_is_there_at_once_and_after_a_restart(tmp_path):
    async def first():
        keep = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)
        keep.put("a", b"1")
        keep.put("b", b"2")
        assert keep.get("a") == b"1"
        await synced(keep)
        assert keep.get("a") == b"1"
        keep.put("a", b"")
        await synced(keep)
        assert keep.get("a") is None
        # Not closed: as after a kill, only what was synced counts.
        other = sqlite3.connect(tmp_path / "keep.db")
        assert other.execute("SELECT key, value FROM kept").fetchall() == [("b", b"2")]
        other.close()
        keep.close()

    async def second():
        keep = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)
        assert keep.get("b") == b"2"
        assert keep.get("a") is None
        keep.close()

    in_loop(first)
    in_loop(second)


def test_syncs_that_come_together_share_a_write_and_keep_their_order(tmp_path):
    async def run():
        keep = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)
        order: list[int] = []
        for number in range(200):
            keep.put(f"k{number % 7}", str(number).encode())
            keep.sync(lambda number=number: order.append(number))
        await synced(keep)
        assert order == list(range(200))
        assert keep.get("k0") == b"196"
        keep.close()

    in_loop(run)


def test_a_value_put_while_a_sync_is_under_way_is_not_lost(tmp_path):
    async def run():
        keep = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)
        keep.put("a", b"old")
        keep.sync(lambda: None)
        keep.put("a", b"new")
        await synced(keep)
        keep.close()
        again = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)
        assert again.get("a") == b"new"
        again.close()

    in_loop(run)


def test_a_disk_that_fails_is_heard_of(tmp_path):
    async def run():
        heard = asyncio.get_running_loop().create_future()
        keep = Keep(asyncio.get_running_loop(), tmp_path / "keep.db", heard.set_result)
        keep._connection.execute("DROP TABLE kept")
        keep.put("a", b"1")
        keep.sync(lambda: pytest.fail("it is not durable"))
        error = await asyncio.wait_for(heard, 30)
        assert isinstance(error, KeepError)
        keep._unwritten.clear()
        keep.close()

    in_loop(run)


def test_a_file_that_is_no_database_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "keep.db").write_bytes(b"x" * 5000)

    async def run():
        with pytest.raises(KeepError, match=r"keep\.db cannot be used"):
            Keep(asyncio.get_running_loop(), tmp_path / "keep.db", pytest.fail)

    in_loop(run)
