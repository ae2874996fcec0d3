"""What a task leaves in its directory: however deep, long or locked, it is removed; what cannot be
is moved aside, named, and stops nobody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from surely import sureline

from sureline.peer.removing import clear_away, empty_directory, remove_tree


def dig(top: Path, depth: int, name: str = "d") -> None:
    """A chain of directories, deeper than any path could name, with a file at its bottom."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize(("depth", "name"), [(3000, "d"), (60, "n" * 255)])
def test_any_depth_and_any_length_can_be_removed(tmp_path: Path, depth: int, name: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    dig(top, depth, name)
    dig(top, depth, name[:-1] + "e")
    remove_tree(str(top))
    assert not top.exists()


def test_locked_directories_and_links_out_of_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    top = tmp_path / "top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/c/file").write_text("x")
    (top / "a/link").symlink_to(outside)
    (top / "a/b").chmod(0)
    (top / "a").chmod(0o500)
    empty_directory(str(top))
    assert list(top.iterdir()) == []
    assert (outside / "precious").read_text() == "x"
    remove_tree(str(top / "never there"))


def test_what_cannot_be_removed_is_moved_aside_and_the_rest_goes(tmp_path: Path) -> None:
    top = tmp_path / "work"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/stays").write_text("x")
    (top / "a/goes").write_text("x")
    protect = ["chattr", "+i", top / "a/b/stays"]
    if subprocess.run(protect, capture_output=True, check=False).returncode:
        pytest.skip("this file system cannot protect a file")
    try:
        where = Path(clear_away(str(top), str(tmp_path / "aside")))
        assert where.parent == tmp_path / "aside" and not top.exists()
        left = [path.name for path in where.rglob("*") if path.is_file()]
        assert left == ["stays"]
    finally:
        for path in tmp_path.rglob("stays"):
            subprocess.run(["chattr", "-i", path], check=True)
    assert clear_away(str(where), str(tmp_path / "aside")) == ""


DIGGING = """\
name: digging
tasks:
  dig:
    run: |
      i=0
      while [ $i -lt 900 ]; do mkdir dddddddddddddddd; cd -P dddddddddddddddd; i=$((i+1)); done
      exit EXIT
"""


@pytest.mark.parametrize("code", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_task_that_digs_stops_neither_its_run_nor_the_next(tmp_path: Path, code: int) -> None:
    (tmp_path / "dig.yaml").write_text(DIGGING.replace("EXIT", str(code)))
    (tmp_path / "next.yaml").write_text("name: next\ntasks:\n  a: {run: 'true'}\n")
    dug = sureline(tmp_path, "run", "dig.yaml")
    assert dug.code == code and "Traceback" not in dug.err, dug
    after = sureline(tmp_path, "run", "next.yaml")
    assert after.code == 0, after
    assert os.listdir(tmp_path / ".sureline/work") == []
