from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.peer.commands import SCRIPT, argv_of, find_program, start_of

PATH = "/usr/bin:/bin"

DIRECT = [
    ("true", ["true"]),
    ("/bin/true", ["/bin/true"]),
    ("cp a b", ["cp", "a", "b"]),
    ("  cp\ta   b  ", ["cp", "a", "b"]),
    ("cp 'a b' c", ["cp", "a b", "c"]),
    ('cp "a b" c', ["cp", "a b", "c"]),
    ("cp '' c", ["cp", "", "c"]),
    ("cp '$HOME' 'a*'", ["cp", "$HOME", "a*"]),
    ('cp "a*|b;c" d', ["cp", "a*|b;c", "d"]),
    ("dd if=a of=b", ["dd", "if=a", "of=b"]),
    ("split -n l/4 -d big.txt part.", ["split", "-n", "l/4", "-d", "big.txt", "part."]),
    ("./prog --x=1", ["./prog", "--x=1"]),
    ("echo 'a'b\"c\"", ["echo", "abc"]),
]

BY_SHELL = [
    "echo $HOME",
    "echo `date`",
    "a | b",
    "true &",
    "true; true",
    "true && true",
    "cat < a",
    "cat > a",
    "(true)",
    "ls *.txt",
    "ls a?",
    "ls [ab]",
    "ls ~",
    "true # comment",
    "true\ntrue",
    "echo a\\ b",
    'echo "$HOME"',
    'echo "a\\n"',
    'echo "`date`"',
    "echo 'unfinished",
    "echo {a,b}",
    "! true",
    "X=1 env",
    "cd /tmp",
    "export A",
    "exit 3",
    "set -x",
    ". file",
    "source file",
    ":",
    "ulimit -n 10",
    "umask 022",
    "eval true",
    "exec true",
    "trap true EXIT",
    "wait",
    "read x",
    "if true",
    "time true",
    "surely-no-such-program a",
    "",
    "   ",
]


@pytest.mark.parametrize(("run", "argv"), DIRECT)
def test_plain_commands_run_directly(run: str, argv: list[str]) -> None:
    assert argv_of(run, PATH) == argv


@pytest.mark.parametrize("run", BY_SHELL)
def test_shell_syntax_goes_to_the_shell(run: str) -> None:
    assert argv_of(run, PATH) == ["bash", "-eo", "pipefail", "-c", run]


def test_programs_are_found_on_the_given_path(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f"/usr/bin:{tmp_path}"
    assert find_program("mine", path) == str(program)
    assert find_program("mine", "/usr/bin") is None
    assert find_program("a/b", "/usr/bin") == "a/b"
    program.unlink()
    assert find_program("mine", path) is None


def test_a_relative_path_entry_is_left_to_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mine").write_text("#!/bin/sh\n")
    (tmp_path / "bin/mine").chmod(0o755)
    assert argv_of("mine", "bin")[:2] == ["/bin/sh", "-ec"]


@settings(max_examples=60, deadline=None)
@given(st.text("ab1 \t'\"$`|&;<>()*?[~#\\={}!^%@+:,.-", min_size=1, max_size=12))
def test_what_runs_directly_means_what_the_shell_means(arguments: str) -> None:
    run = f"printf %s. {arguments}"
    argv = argv_of(run, PATH)
    if argv[0] == "printf":
        environment = {"PATH": PATH, "LC_ALL": "C"}
        direct = subprocess.run(argv, capture_output=True, env=environment, check=False)
        shell = subprocess.run(
            ["/bin/sh", "-ec", run], capture_output=True, env=environment, check=False
        )
        assert (direct.returncode, direct.stdout) == (shell.returncode, shell.stdout)


def test_no_path_means_the_default_one() -> None:
    assert find_program("sh", None) in {f"{d}/sh" for d in os.defpath.split(os.pathsep)}


@pytest.mark.parametrize(
    ("run", "shell", "argv", "is_script"),
    [
        ("x | y", "bash", ["bash", "-eo", "pipefail", "-c", "x | y"], False),
        ("x", "bash", ["bash", "-eo", "pipefail", "-c", "x"], False),
        ("1 + 1", "python3", ["python3", SCRIPT], True),
        ("1 + 1", "Rscript --vanilla {} more", ["Rscript", "--vanilla", SCRIPT, "more"], True),
        ("#!/usr/bin/env python3\n1", "", ["/usr/bin/env", "python3", SCRIPT], True),
        ("#! /bin/sh\n", "python3", ["/bin/sh", SCRIPT], True),
    ],
)
def test_other_shells(run: str, shell: str, argv: list[str], is_script: bool) -> None:
    assert start_of(run, PATH, shell) == (argv, is_script)


def test_without_bash_it_is_sh() -> None:
    program, flags, text = argv_of("a | b", "/nowhere")
    assert (program, flags) == ("/bin/sh", "-ec")
    assert text.endswith("a | b")
