"""Wildcards: what matches, against a slow and obvious matcher, and that few names are looked at."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.workflow import globs
from sureline.workflow.globs import DiskIndex, GlobError, PathIndex, RealDisk, escape_glob, is_glob

PATHS = ["a.txt", "b.txt", "c1", "c[1]", ".hidden", "d/a.txt", "d/e/f.txt", "d/.x/y.txt", "d/-"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[b-z].txt", ["b.txt"]),
        ("[!b-z].txt", ["a.txt"]),
        ("[!-]?txt", ["a.txt", "b.txt"]),
        ("[!ab]?txt", []),
        ("**", ["a.txt", "b.txt", "c1", "c[1]", "d/-", "d/a.txt", "d/e/f.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "d/a.txt", "d/e/f.txt"]),
        ("d/**/*.txt", ["d/a.txt", "d/e/f.txt"]),
        ("d/**", ["d/-", "d/a.txt", "d/e/f.txt"]),
        ("d/*", ["d/-", "d/a.txt"]),
        ("d/[-]", ["d/-"]),
        ("*/*", ["d/-", "d/a.txt"]),
        ("c[[]1]", ["c[1]"]),
        ("c[1]", ["c1"]),
        (".*", [".hidden"]),
        ("d/.x/*", ["d/.x/y.txt"]),
    ],
)
def test_matches(pattern: str, matches: list[str], tmp_path: Path) -> None:
    assert PathIndex(PATHS).match(pattern) == matches
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    found = DiskIndex(RealDisk(tmp_path)).match(pattern)
    assert [path for path in found if not (tmp_path / path).is_dir()] == matches


names = st.text("ab.-]!", min_size=1, max_size=5)


@given(st.lists(names, max_size=30), st.text("ab.*?", min_size=1, max_size=8))
def test_agrees_with_fnmatch_within_a_directory(paths: list[str], pattern: str) -> None:
    if is_glob(pattern):
        hidden = pattern.startswith(".")
        expected = {p for p in paths if fnmatch.fnmatchcase(p, pattern)}
        expected = {p for p in expected if hidden or not p.startswith(".")}
        assert set(PathIndex(set(paths)).match(pattern)) == expected


def _is_normal(path: str) -> bool:
    return "//" not in path and path == path.strip("/")


@given(st.text("a*?[]!/-", min_size=1, max_size=6).filter(_is_normal))
def test_an_escaped_path_matches_itself(path: str) -> None:
    pattern = escape_glob(path)
    if is_glob(path):
        assert PathIndex([path]).match(pattern) == [path]
    else:
        assert pattern == path


def test_many_stars_take_no_longer_than_one() -> None:
    # ten nested searches through a hundred letters would never end
    assert PathIndex(["a" * 100]).match("*a" * 10 + "*b") == []
    assert PathIndex(["a" * 100 + "b"]).match("*a" * 10 + "*b") == ["a" * 100 + "b"]


def test_few_names_are_looked_at() -> None:
    index = PathIndex(f"{i}/part.{j}" for i in range(100) for j in range(100))
    assert len(index.match("7/part.*")) == 100
    assert len(index.match("*/part.7")) == 100
    assert index.looks == 200


def test_too_much_looking_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "LOOKS_MAX", 50)
    index = PathIndex(f"part.{j}" for j in range(30))
    assert index.match("*.1*")
    with pytest.raises(GlobError, match="more than 50 names"):
        index.match("*.2*")


def test_the_disk_shows_no_journal_no_foreign_names_and_no_endless_links(tmp_path: Path) -> None:
    (tmp_path / ".sureline").mkdir()
    (tmp_path / ".sureline" / "journal.txt").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").touch()
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    with open(os.fsencode(tmp_path) + b"/\xff.txt", "wb"):
        pass
    index = DiskIndex(RealDisk(tmp_path))
    assert index.match("**/*.txt") == ["d/a.txt"]
    assert index.match("*.txt") == []
