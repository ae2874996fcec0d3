"""Commands in shells: a failure anywhere in a pipe counts, and other programs may take the text."""

from __future__ import annotations

import pytest
from cli_bench import Bench


@pytest.mark.parametrize("shell", ["", "bash"])
def test_a_pipe_fails_if_any_part_does(bench: Bench, shell: str) -> None:
    line = f"shell: {shell}" if shell else ""
    bench.flow(f"tasks:\n  a:\n    run: false | cat > out\n    outputs: [out]\n    {line}\n")
    assert bench.counts(code=1) == {"total": 1, "failed": 1}
    assert not (bench.directory / "out").exists()


def test_a_script_stops_at_its_first_failure(bench: Bench) -> None:
    bench.flow("tasks:\n  a:\n    run: |\n      false\n      touch out\n    outputs: [out]\n")
    assert bench.counts(code=1)["failed"] == 1


def test_other_programs_and_their_lines(bench: Bench) -> None:
    bench.flow(
        """\
        defaults: {shell: python3}
        tasks:
          python:
            run: |
              import sys, helper
              open("a", "w").write(str(helper.TEN + len(sys.argv)))
            inputs: [helper.py]
            outputs: [a]
          line:
            run: |
              #!/usr/bin/env -S python3 -u
              open("b", "w").write("line")
            outputs: [b]
          sh:
            run: echo $((2 * 3)) > c
            shell: sh
            outputs: [c]
          program:
            run: open("d", "w").write("with " + __import__("sys").argv[1])
            shell: python3 {} more
            outputs: [d]
        """,
        **{"helper.py": "TEN = 10\n"},
    )
    assert bench.counts() == {"total": 4, "succeeded": 4}
    assert [bench.text(name) for name in "abcd"] == ["11", "line", "6\n", "with more"]
    assert bench.counts() == {"total": 4, "reused": 4}
    bench.flow(bench.text("w.yaml").replace("shell: sh", "shell: bash"), **{"helper.py": "TEN=10"})
    again = bench.run()
    assert again["tasks"]["succeeded"] == 2, "another shell, and another helper"
    assert "its shell is bash (was sh)" in bench("explain", "sh").out


def test_a_shell_that_makes_no_sense_is_a_mistake(bench: Bench) -> None:
    bench.flow('tasks:\n  a:\n    run: x\n    shell: "python3 \'open"\n    repeatable: perhaps\n')
    answer = bench("validate", "w.yaml")
    assert answer.code == 2
    assert "`shell` of task 'a'" in answer.err or "`shell` of task 'a'" in answer.out
    assert "write true or false" in answer.err + answer.out


def test_a_shell_that_is_not_there_fails_its_task(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: x, shell: surely-no-such-program}\n")
    assert bench.counts(code=1)["failed"] == 1
    assert "surely-no-such-program" in bench("show").out
