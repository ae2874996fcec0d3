"""Whole peers, each a process, over real TLS: three fetch from one, one is killed and goes on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from files_grid import MIB, content

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark's own way to start peers and to drive them."""
    spec = importlib.util.spec_from_file_location("files_benchmark", BENCHMARKS / "files.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["files_benchmark"] = module
    spec.loader.exec_module(module)
    return module


Start = Callable[[str], Any]


@pytest.fixture
def start(bench: ModuleType, tmp_path: Path) -> Iterator[Start]:
    homes = bench.make_homes(tmp_path, ["a", "b", "c"])
    started = []

    def start(name: str) -> Any:
        process = bench.Process("files_peer.py", homes[name], tmp_path / name, 1 << 40)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def has(key: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: key in event


def test_32_mb_to_three_peers_and_the_source_dies_halfway(
    bench: ModuleType, tmp_path: Path
) -> None:
    names = ["peer1", "peer2", "peer3"]
    homes = bench.make_homes(tmp_path, ["source", *names])
    path = tmp_path / "data"
    path.write_bytes(content(32 * MIB))
    found = bench.swarm(tmp_path, homes, path, names, kill_source=True)
    assert found["whole"], found


def test_a_downloader_that_is_killed_goes_on_where_it_was(
    bench: ModuleType, start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(content(24 * MIB))
    a, b = start("a"), start("b")
    source = a.hear(has("node"))["node"]
    b.hear(has("node"))
    a.tell(do="put", path=str(path))
    put = a.hear(has("put"))
    wanted = {"digest": put["put"], "size": put["size"], "sources": [source]}
    b.tell(do="fetch", **wanted, die_at=0.5)
    assert b.wait() == -9
    again = start("b")
    again.hear(has("node"))
    again.tell(do="fetch", **wanted)
    first = again.hear(has("there"))
    assert first["there"] >= 10 * MIB, "what had come is not fetched again"
    assert "fetched" in again.hear(lambda event: "fetched" in event or "missing" in event)
    blob = tmp_path / "b" / "blobs" / put["put"][:2] / put["put"][2:]
    assert blob.read_bytes() == path.read_bytes()
    assert not list((tmp_path / "b" / "incoming").iterdir())


@pytest.mark.soak
def test_2_gb_at_half_the_rate_of_a_plain_copy_and_without_the_source(
    bench: ModuleType, tmp_path: Path
) -> None:
    found = bench.measure(tmp_path, 2 * 10**9, 3, 1)
    print(found)
    assert found["whole"] and found["source_killed_halfway"]["whole"], found
    assert found["ratio"] >= 0.5, found
