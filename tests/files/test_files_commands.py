"""`sureline files`: put, get, locate, ls and rm, in homes of a real grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from files_grid import MIB, Grid, content, on_grid, put
from grid_lab import GridLab
from grids import new_grid
from surely import Said, until

from sureline.cli import filing, main
from sureline.cli.filing import FetchProgress, fetch, place
from sureline.peer.files.cache import FileCache
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError

Here = Callable[..., Said]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command in this process: starting one takes longer than the command."""
    if "files" not in main.app:
        main.app.command(filing.files)

    def run(home: Path, *arguments: str) -> Said:
        monkeypatch.setenv("SURELINE_HOME", str(home))
        code = main.run_command(["files", *arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def test_what_one_home_puts_another_gets(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "x").write_text("deep\n")
    (tmp_path / "big").write_bytes(content(5 * MIB))
    monkeypatch.chdir(tmp_path)
    with GridLab(tmp_path / "lab") as lab:
        lab.where.mkdir()
        lab.start(2)
        said = here(lab.home("p0"), "put", "big", "tree", "--json")
        assert said.code == 0 and said.json["served"], said
        big, of_tree = (one["digest"] for one in said.json["files"])
        assert of_tree.endswith("/") and "no peer serves" not in said.err

        def located() -> bool:
            found = here(lab.home("p1"), "locate", big, "--json").json
            return [node.partition("@")[0] for node in found["nodes"]] == ["p0"]

        until(located, "the peer of the home to have announced it")
        said = here(lab.home("p1"), "get", big, "-o", "got", "--json")
        assert said.code == 0 and said.json["source"].startswith("p0@"), said
        assert (tmp_path / "got").read_bytes() == content(5 * MIB)
        said = here(lab.home("p1"), "get", of_tree, "-o", "got-tree")
        assert said.code == 0 and "got-tree is complete" in said.err, said
        assert (tmp_path / "got-tree" / "deep" / "x").read_text() == "deep\n"


def test_without_a_peer_put_says_that_nobody_is_served(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    new_grid(home)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_bytes(b"some content")
    said = here(home, "put", "data")
    digest = said.out.split()[0]
    assert said.code == 0 and "no peer serves from this home" in said.err
    listed = here(home, "ls", "--json").json
    assert [one["digest"] for one in listed["files"]] == [digest]
    assert listed["files"][0]["kept_for"] == ["put here by the user"]
    shown = here(home, "ls").out
    assert digest in shown and "12 B" in shown and "1 file, 12 B" in shown
    said = here(home, "get", digest)
    assert said.code == 0 and (tmp_path / digest[:16]).read_bytes() == b"some content"
    assert here(home, "rm", digest).code == 0
    assert here(home, "ls", "--json").json["files"] == []
    for wrong in ("nonsense", "AB" * 32, "ab" * 31):
        said = here(home, "get", wrong)
        assert said.code == 2 and "is not a digest" in said.err
    said = here(home, "put", "nothing-here")
    assert said.code == 2 and "there is no file nothing-here" in said.err


def test_what_is_still_needed_is_not_removed_and_the_exit_code_says_so(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    new_grid(home)
    monkeypatch.chdir(tmp_path)
    digests = []
    for name in ("needed", "free"):
        (tmp_path / name).write_text(name)
        digests.append(here(home, "put", name).out.split()[0])
    (where,) = {path.parents[2] for path in home.rglob(digests[0][2:])}
    cache = FileCache(where, 1 << 30)
    cache.mark_only_copy(FileRecord("needed", digests[0], 6), "run-7")
    said = here(home, "rm", *digests, "--json")
    assert (said.code, said.json) == (1, {"removed": digests[1:]})
    assert f"{digests[0]} stays for now: only copy for run run-7" in said.err
    left = here(home, "ls", "--json").json["files"]
    assert [one["digest"] for one in left] == digests[:1]
    cache.release_run("run-7")
    cache.close()
    assert here(home, "rm", digests[0]).code == 0
    assert here(home, "ls", "--json").json["files"] == []


def test_progress_is_told_and_the_file_placed_whole(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b", serve=False)
        data = content(3 * MIB)
        record = await put(a, tmp_path, data)
        told: list[str] = []
        got = await fetch(b, record, FetchProgress(told.append))
        assert told and told[0].endswith("/s\n")
        place(b.cache, got.file, tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == data

    on_grid(tmp_path, story)


def test_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 10**6)
    (tmp_path / "data").write_bytes(b"x")
    record = cache.put(str(tmp_path / "data"), "data")
    with pytest.raises(UserError, match="is not a directory; make it first"):
        place(cache, record, tmp_path / "nowhere" / "out")
    place(cache, record, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "x"
    cache.close()
