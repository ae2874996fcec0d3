"""Running workflows through the command line: what a user sees happen, on real files."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from cli_bench import Bench, wait_until

# -- the example everybody starts with ----------------------------------------------------------


@pytest.fixture
def wordcount(bench: Bench) -> Bench:
    """The starter workflow with a text of ours: 400 words in 100 lines."""
    assert bench("init").code == 0
    bench.write({"big.txt": "".join(f"line {k} of text\n" for k in range(100))})
    (bench.directory / "workflow.yaml").rename(bench.directory / "w.yaml")
    return bench


def test_the_wordcount_counts_words(wordcount: Bench) -> None:
    assert wordcount.counts() == {"total": 6, "succeeded": 6}
    assert wordcount.text("total.txt") == "400\n"


def test_another_text_by_a_parameter(wordcount: Bench) -> None:
    wordcount.write({"other.txt": "one two three\n" * 8})
    assert wordcount.counts("--set", "big=other.txt") == {"total": 6, "succeeded": 6}
    assert wordcount.text("total.txt") == "24\n"


def test_a_rerun_reuses_everything_and_brings_back_what_was_lost(wordcount: Bench) -> None:
    wordcount.run()
    (wordcount.directory / "total.txt").unlink()
    (wordcount.directory / "part.01").write_text("spoilt")
    assert wordcount.counts() == {"total": 6, "reused": 6}
    assert wordcount.text("total.txt") == "400\n"
    assert wordcount.text("part.01") != "spoilt"


def test_fresh_reuses_nothing(wordcount: Bench) -> None:
    wordcount.run()
    assert wordcount.counts("--fresh") == {"total": 6, "succeeded": 6}


def test_a_changed_line_reruns_just_what_depends_on_it(wordcount: Bench) -> None:
    wordcount.run()
    text = wordcount.text("big.txt")
    # the last part alone changes; the three others keep their content
    wordcount.write({"big.txt": text.replace("line 99 of text", "line 99 of tea, 1")[:-1]})
    wordcount.run()
    states = wordcount.states()
    assert states["split"] == states["count:03"] == states["total"] == "succeeded"
    assert states["count:00"] == states["count:01"] == states["count:02"] == "reused"
    assert wordcount.text("total.txt") == "401\n"


def test_going_back_to_an_earlier_input_reuses_its_results(wordcount: Bench) -> None:
    wordcount.run()
    text = wordcount.text("big.txt")
    wordcount.write({"big.txt": "a b\n" * 50})
    wordcount.run()
    wordcount.write({"big.txt": text})
    assert wordcount.counts() == {"total": 6, "reused": 6}
    assert wordcount.text("total.txt") == "400\n"


# -- reuse ---------------------------------------------------------------------------------------


def test_changed_commands_rerun(bench: Bench) -> None:
    flow = """\
        tasks:
          a: {run: echo %s > a, outputs: [a]}
          b: {run: echo b > b, outputs: [b]}
          c: {run: cat a b > c, inputs: [a, b], outputs: [c]}
        """
    bench.flow(flow % "one")
    bench.run()
    bench.flow(flow % "two")
    bench.run()
    assert bench.states() == {"a": "succeeded", "b": "reused", "c": "succeeded"}
    assert bench.text("c") == "two\nb\n"


def test_the_same_output_again_spares_the_rest(bench: Bench) -> None:
    """What counts is content: a task that makes the same file in another way changes nothing."""
    flow = """\
        tasks:
          a: {run: %s > a, outputs: [a]}
          b: {run: cat a > b, inputs: [a], outputs: [b]}
        """
    bench.flow(flow % "echo x")
    bench.run()
    bench.flow(flow % "printf 'x\\n'")
    bench.run()
    assert bench.states() == {"a": "succeeded", "b": "reused"}


def test_env_counts_for_reuse_and_the_callers_environment_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = """\
        tasks:
          a: {run: 'echo $MINE $OURS > a', outputs: [a], env: {OURS: "%s"}}
          b: {run: 'echo $MINE > b', outputs: [b]}
        """
    monkeypatch.setenv("MINE", "one")
    monkeypatch.setenv("OURS", "hidden by env:")
    bench.flow(flow % "x")
    bench.run()
    assert (bench.text("a"), bench.text("b")) == ("one x\n", "one\n"), "inherited, env: on top"
    monkeypatch.setenv("MINE", "two")
    assert bench.counts() == {"total": 2, "reused": 2}
    bench.flow(flow % "y")
    bench.run()
    assert bench.states() == {"a": "succeeded", "b": "reused"}
    assert bench.text("a") == "two y\n"


def test_a_failure_is_not_reused(bench: Bench) -> None:
    flag = bench.directory / "outside"
    bench.flow(f"tasks:\n  a: {{run: test -e {flag}}}\n")
    bench.run(code=1)
    flag.touch()
    assert bench.counts() == {"total": 1, "succeeded": 1}


# -- failures ------------------------------------------------------------------------------------

BROKEN = """\
    tasks:
      good: {run: echo fine > good, outputs: [good]}
      bad:
        run: |
          for k in 1 2 3 4 5 6 7 8; do echo "complaint $k" >&2; done
          exit 7
        inputs: [good]
        outputs: [bad.txt]
      child: {run: cat bad.txt, inputs: [bad.txt]}
      grandchild: {run: 'true', after: [child]}
      other: {run: echo other > other, outputs: [other], after: [good]}
    """


def test_a_failing_task(bench: Bench) -> None:
    bench.flow(BROKEN)
    answer = bench("run", "w.yaml", "--json")
    assert answer.code == 1
    assert answer.json["tasks"] == {
        "total": 5,
        "succeeded": 2,
        "reused": 0,
        "failed": 1,
        "cancelled": 2,
    }
    assert "bad failed: exit code 7" in answer.err
    assert "| complaint 8" in answer.err
    assert "complaint 1" not in answer.err, "the tail, not all of it"
    assert bench.text("other") == "other\n", "what does not depend on it goes on"
    assert not (bench.directory / "bad.txt").exists()
    assert bench.states() == {
        "good": "succeeded",
        "bad": "failed",
        "child": "cancelled",
        "grandchild": "cancelled",
        "other": "succeeded",
    }


def test_resume_after_mending_the_cause(bench: Bench) -> None:
    flag = bench.directory / "mended"
    bench.flow(f"""\
        tasks:
          a: {{run: echo ran >> {bench.directory}/count; echo a > a, outputs: [a]}}
          b: {{run: test -e {flag} && cat a > b, inputs: [a], outputs: [b]}}
        """)
    first = bench.run(code=1)
    flag.touch()
    answer = bench("resume", "--json")
    assert answer.code == 0
    assert answer.json["run"] == first["run"]
    assert answer.json["tasks"]["succeeded"] == 2
    assert bench.text("b") == "a\n"
    assert bench.text("count") == "ran\n", "what had succeeded did not run again"


def test_what_had_ended_before_a_crash_does_not_run_again(bench: Bench) -> None:
    """The second task kills the engine at its very start; by then the first one had ended."""
    here = bench.directory
    bench.flow(f"""\
        tasks:
          first:
            run: |
              until test -s {here}/pid; do sleep 0.01; done
              echo ran >> {here}/count
              echo x > first
            outputs: [first]
          second:
            run: |
              test -e {here}/killed && exit 0
              touch {here}/killed
              kill -9 $(cat {here}/pid)
            inputs: [first]
        """)
    going = bench.start("run", "w.yaml")
    (here / "pid").write_text(f"{going.pid}\n")
    assert going.wait() == -9
    assert bench("show", "--json").json["state"] == "interrupted"
    assert bench("resume").code == 0
    assert bench.text("count") == "ran\n"


def test_stop_on_failure(bench: Bench) -> None:
    bench.flow("""\
        tasks:
          bad: {run: exit 1}
          late: {run: 'true', for: {i: 1..20}, after: []}
        """)
    result = bench.run("--stop-on-failure", "--cores", "1", code=1)
    counts = result["tasks"]
    assert counts["failed"] == 1
    assert counts["cancelled"] > 0
    assert counts["succeeded"] + counts["failed"] + counts["cancelled"] == counts["total"] == 21


def test_killed_by_a_signal(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: 'kill -SEGV $$'}\n")
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "SIGSEGV" in answer.err
    failure = bench("show", "last", "a", "--json").json["failures"][0]
    assert (failure["signal"], failure["exit_code"]) == (11, None)


def test_a_program_that_is_not_there(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: no-such-program --at all}\n")
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "a failed: exit code 127" in answer.err
    assert "no-such-program" in answer.err.split("|", 1)[1]


def test_retries_then_success(bench: Bench) -> None:
    """The attempts count themselves outside of their sandboxes."""
    bench.flow(f"""\
        tasks:
          a:
            run: echo try >> {bench.directory}/tries; test $(wc -l < {bench.directory}/tries) -ge 3
            retries: 4
        """)
    answer = bench("run", "w.yaml", "--retry-delay", "10ms", "--json")
    assert answer.code == 0
    assert answer.json["tasks"]["succeeded"] == 1
    assert bench.text("tries") == "try\n" * 3
    task = bench("show", "last", "a", "--json").json
    assert task["attempts"] == 3
    assert [failure["attempt"] for failure in task["failures"]] == [1, 2]


def test_retries_are_bounded(bench: Bench) -> None:
    bench.flow(f"""\
        tasks:
          a: {{run: echo try >> {bench.directory}/tries; exit 1, retries: 2}}
        """)
    assert bench.counts("--retry-delay", "0", code=1) == {"total": 1, "failed": 1}
    assert bench.text("tries") == "try\n" * 3
    for attempt in (1, 2, 3):
        assert bench("logs", "last", "a", "--attempt", str(attempt)).code == 0


def test_timeout(bench: Bench) -> None:
    bench.flow(f"""\
        tasks:
          a:
            run: sh -c 'echo $$ > {bench.directory}/pid; exec sleep 600' & wait
            timeout: 2s
        """)
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "a failed: took longer than its timeout of 2 s" in answer.err
    assert bench("show", "last", "a", "--json").json["failures"][0]["outcome"] == "timeout"
    pid = int(bench.text("pid"))
    wait_until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # a zombie that its parent has not buried yet runs no more
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_missing_output_is_a_failure(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: touch b.txt made, outputs: [a.txt, made]}\n")
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "did not make its output a.txt (it made b.txt)" in answer.err
    assert not (bench.directory / "made").exists(), "all of its outputs or none"


# -- files ---------------------------------------------------------------------------------------


def test_directories_as_outputs_and_inputs(bench: Bench) -> None:
    bench.write({"src/one.txt": "1\n", "src/deep/two.txt": "2\n"})
    bench.flow("""\
        tasks:
          copy:
            run: mkdir out; cp -r src/. out/; mkdir out/empty; ln -s one.txt out/link
            inputs: [src/]
            outputs: [out]
          read: {run: 'cat out/one.txt out/deep/two.txt > all', inputs: [out], outputs: [all]}
          part: {run: cp out/deep/two.txt two, inputs: [out/deep/two.txt], outputs: [two]}
        """)
    assert bench.counts() == {"total": 3, "succeeded": 3}
    assert bench.text("all") == "1\n2\n"
    assert bench.text("two") == "2\n"
    assert (bench.directory / "out/empty").is_dir()
    assert os.readlink(bench.directory / "out/link") == "one.txt"
    assert bench.counts() == {"total": 3, "reused": 3}
    bench.write({"src/deep/two.txt": "3\n"})
    bench.run()
    assert bench.text("all") == "1\n3\n"


def test_the_executable_bit_is_kept(bench: Bench) -> None:
    bench.write({"tool": "#!/bin/sh\necho mine\n"})
    (bench.directory / "tool").chmod(0o755)
    bench.flow("""\
        tasks:
          make:
            run: printf '#!/bin/sh\\necho made\\n' > prog; chmod +x prog
            outputs: [prog]
          use: {run: './prog > said; ./tool >> said', inputs: [prog, tool], outputs: [said]}
        """)
    bench.run()
    assert bench.text("said") == "made\nmine\n"
    assert os.access(bench.directory / "prog", os.X_OK)
    (bench.directory / "prog").unlink()
    assert bench.counts() == {"total": 2, "reused": 2}
    assert os.access(bench.directory / "prog", os.X_OK)


def test_stdin(bench: Bench) -> None:
    bench.write({"in.txt": "b\na\n"})
    bench.flow("""\
        tasks:
          sort: {run: 'sort > out', stdin: in.txt, outputs: [out]}
          head: {run: 'head -1 > first', stdin: out, outputs: [first]}
          none: {run: 'cat > nothing', outputs: [nothing]}
        """)
    bench.run()
    assert (bench.text("first"), bench.text("nothing")) == ("a\n", "")


def test_in_place_uses_the_file_where_it_lies(bench: Bench) -> None:
    bench.write({"huge": "contents\n"})
    bench.flow("""\
        tasks:
          a: {run: 'readlink -f huge > where; cat huge', inputs: [huge], outputs: [where],
              in_place: true}
        """)
    bench.run()
    huge = bench.directory / "huge"
    assert bench.text("where") == f"{huge.resolve()}\n"
    assert bench.counts() == {"total": 1, "reused": 1}
    os.utime(huge, ns=(0, huge.stat().st_mtime_ns + 1_000_000_000))
    assert bench.counts() == {"total": 1, "succeeded": 1}, "its time says that it may be another"


def test_inputs_are_read_only_and_the_sandbox_is_fresh(bench: Bench) -> None:
    bench.write({"in.txt": "mine\n", "not-declared": "x"})
    bench.flow("""\
        tasks:
          a:
            run: stat -c %A in.txt > modes; all=$(find . | sort); echo $all > seen; pwd > here
            inputs: [in.txt]
            outputs: [seen, modes, here]
          b:
            run: all=$(find . | sort); echo $all > seen-b; echo more > left-over
            outputs: [seen-b]
          c:
            run: all=$(find . | sort); echo $all > seen-c
            outputs: [seen-c]
            after: [b]
        """)
    bench.run()
    assert bench.text("seen").split() == [".", "./in.txt", "./modes"]
    assert bench.text("seen-b").split() == ["."]
    assert bench.text("seen-c").split() == ["."], "nothing of an earlier task"
    assert "w" not in bench.text("modes")
    assert not Path(bench.text("here").strip()).exists(), "and gone afterwards"
    assert not (bench.directory / "left-over").exists(), "what is not declared is not kept"


def test_a_task_cannot_spoil_the_users_input(bench: Bench) -> None:
    """Even one that forces its way past the permissions."""
    bench.write({"in.txt": "mine\n"})
    bench.flow("""\
        tasks:
          a: {run: 'chmod u+w in.txt && echo spoilt > in.txt; true', inputs: [in.txt]}
          b: {run: cat in.txt > out, inputs: [in.txt], outputs: [out], after: [a]}
        """)
    bench("run", "w.yaml")
    assert bench.text("in.txt") == "mine\n"
    bench.flow("tasks:\n  b: {run: cat in.txt > out, inputs: [in.txt], outputs: [out]}\n")
    bench.run()
    assert bench.text("out") == "mine\n"


def test_changing_a_result_in_the_directory_does_not_spoil_the_store(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: echo good > out, outputs: [out]}\n")
    bench.run()
    out = bench.directory / "out"
    out.chmod(stat.S_IMODE(out.stat().st_mode) | stat.S_IWUSR)
    with open(out, "a") as stream:
        stream.write("edited by the user\n")
    bench.run()
    assert bench.text("out") == "good\n"


def test_a_wildcard_means_declared_outputs_first(bench: Bench) -> None:
    bench.write({"count.old": "100\n"})
    bench.flow("""\
        tasks:
          count: {for: {i: 1..3}, run: 'echo {{i}} > count.{{i}}', outputs: ['count.{{i}}']}
          all: {run: 'cat count.* > all', inputs: ['count.*'], outputs: [all]}
        """)
    bench.run()
    assert bench.text("all") == "1\n2\n3\n"
    assert bench.counts() == {"total": 4, "reused": 4}


def test_a_wildcard_over_existing_files(bench: Bench) -> None:
    bench.write({"data/b.csv": "b\n", "data/a.csv": "a\n", "data/c.txt": "c\n"})
    bench.flow(
        "tasks:\n  all: {run: cat data/*.csv > all, inputs: ['data/*.csv'], outputs: [all]}\n"
    )
    bench.run()
    assert bench.text("all") == "a\nb\n"
    bench.write({"data/aa.csv": "aa\n"})
    assert bench.counts() == {"total": 1, "succeeded": 1}, "another file, another task"
    assert bench.text("all") == "a\naa\nb\n"


def test_after_orders_without_files(bench: Bench) -> None:
    log = bench.directory / "log"
    bench.flow(f"""\
        tasks:
          last: {{run: echo last >> {log}, after: [middle]}}
          middle: {{for: {{i: 1..3}}, run: 'echo middle >> {log}', after: [first]}}
          first: {{run: 'echo first >> {log}'}}
        """)
    bench.run()
    assert log.read_text().split() == ["first", "middle", "middle", "middle", "last"]


def test_loops_give_the_product(bench: Bench) -> None:
    bench.flow("""\
        params: {n: 2}
        tasks:
          sweep:
            for: {size: "1..{{n}}", colour: [red, "light blue"], k: 08..10}
            run: echo {{task}} > "{{size}}-{{colour}}-{{k}}"
            outputs: ["{{size}}-{{colour}}-{{k}}"]
          every: {run: cat *-* | wc -l > every, inputs: ["*-*-*"], outputs: [every]}
        """)
    assert bench.counts() == {"total": 13, "succeeded": 13}
    assert bench.text("2-light blue-09") == "sweep:2:light blue:09\n"
    assert bench.text("every").strip() == "12"
    assert bench.counts("--set", "n=3") == {"total": 19, "reused": 12, "succeeded": 7}


def test_spaces_and_unicode_everywhere(bench: Bench) -> None:
    bench.write({"données/mon fichier.txt": "é\n"})
    bench.flow("""\
        name: l'été
        params: {quoi: "mon fichier"}
        tasks:
          zoë:
            for: {mot: ["a b", "ñ'", "日本"]}
            run: cp "données/{{quoi}}.txt" "{{mot}} sortie.txt"
            inputs: ["données/{{quoi}}.txt"]
            outputs: ["{{mot}} sortie.txt"]
          tout:
            run: cat *sortie.txt > "tout à fait"
            inputs: ["*sortie.txt"]
            outputs: [tout à fait]
        """)
    assert bench.counts() == {"total": 4, "succeeded": 4}
    assert bench.text("tout à fait") == "é\né\né\n"
    assert bench.states()["zoë:日本"] == "succeeded"
    assert bench("show", "l'été", "zoë:a b").code == 0
    assert bench.counts() == {"total": 4, "reused": 4}


def test_many_outputs_of_one_task(bench: Bench) -> None:
    names = [f"out/{k // 20}/{k}.txt" for k in range(200)]
    bench.flow(
        "tasks:\n  a:\n    run: for k in $(seq 0 199); do echo $k > out/$((k/20))/$k.txt; done\n"
        f"    outputs: {json.dumps(names)}\n"
        "  b: {run: 'cat out/*/*.txt | wc -l > n', inputs: ['out/*/*.txt'], outputs: [n]}\n"
    )
    bench.run()
    assert [bench.text(name) for name in names] == [f"{k}\n" for k in range(200)]
    assert bench.text("n").strip() == "200"


def test_an_output_that_is_a_symbolic_link(bench: Bench) -> None:
    """What the link means is kept, however it is kept."""
    bench.flow("""\
        tasks:
          a: {run: 'echo real > real; ln -s real link', outputs: [real, link]}
          b: {run: cat link > b, inputs: [link], outputs: [b]}
        """)
    bench.run()
    assert bench.text("link") == "real\n"
    assert bench.text("b") == "real\n"


def test_a_link_out_of_the_sandbox_is_no_output(bench: Bench) -> None:
    bench.write({"secret": "outside\n"})
    bench.flow(f"tasks:\n  a: {{run: ln -s {bench.directory}/secret link, outputs: [link]}}\n")
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "link" in answer.err
    assert not os.path.lexists(bench.directory / "link")


@pytest.mark.parametrize(
    ("in_the_way", "says"),
    [
        ("directory", "out is a directory with files in it, where a file is due"),
        ("file", "out is in the way: it must be a directory"),
        ("link", "out lies behind a symbolic link that leaves the working directory"),
    ],
)
def test_nothing_of_the_users_gives_way_to_a_result(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, in_the_way: str, says: str
) -> None:
    """The run says what is in the way; once it is moved, resuming does not run the task again."""
    target = "out" if in_the_way == "directory" else "out/x"
    bench.flow(f"""\
        tasks:
          a: {{run: 'echo ran >> {bench.directory}/count; echo x > {target}', outputs: [{target}]}}
        """)
    out, outside = bench.directory / "out", tmp_path_factory.mktemp("outside")
    if in_the_way == "directory":
        bench.write({"out/mine": "precious\n"})
    elif in_the_way == "file":
        bench.write({"out": "precious\n"})
    else:
        (outside / "mine").write_text("precious\n")
        out.symlink_to(outside)
    answer = bench("run", "w.yaml", "--json", "--overwrite")
    assert answer.code == 1
    assert says in answer.json["reason"]
    kept = out if in_the_way == "file" else out / "mine"
    assert kept.read_text() == "precious\n"
    assert os.listdir(outside) in ([], ["mine"])
    out.rename(bench.directory / "moved")
    assert bench("resume").code == 0
    assert bench.text(target) == "x\n"
    assert bench.text("count") == "ran\n"


def test_a_link_in_the_users_directory_is_replaced_not_followed(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "precious"
    elsewhere.write_text("precious\n")
    (bench.directory / "out").symlink_to(elsewhere)
    bench.flow("tasks:\n  a: {run: echo x > out, outputs: [out]}\n")
    bench.run("--overwrite")
    assert bench.text("out") == "x\n"
    assert elsewhere.read_text() == "precious\n"


def test_an_input_that_is_no_file_fails_and_does_not_hang(bench: Bench) -> None:
    os.mkfifo("in")
    bench.flow("tasks:\n  a: {run: cat in, inputs: [in]}\n")
    answer = bench("run", "w.yaml")
    assert answer.code == 1
    assert "in is a named pipe, not a file" in answer.err


@pytest.mark.parametrize("detach", ["", "setsid "])
def test_what_a_task_leaves_running_ends_with_it(bench: Bench, detach: str) -> None:
    pid = bench.directory / "pid"
    bench.flow(f"""\
        tasks:
          a:
            run: |
              {detach}sh -c 'echo $$ > {pid}; exec sleep 600' > /dev/null 2>&1 &
              until test -s {pid}; do sleep 0.01; done
        """)
    bench.run()
    assert is_gone(int(bench.text("pid")))


def test_logs_that_are_no_text(bench: Bench) -> None:
    bench.flow("""\
        tasks:
          a: {run: 'printf "\\377\\n"; printf "\\376\\n" >&2'}
        """)
    bench.run()
    logs = bench("logs", "last", "a", "--json").json
    assert (logs["stdout"], logs["stderr"]) == ("\ufffd\n", "\ufffd\n")


# -- the machine ---------------------------------------------------------------------------------


def overlap_max(bench: Bench) -> int:
    """How many of the tasks that noted their start and end in `times` ran at once, at most."""
    now = most = 0
    events = []
    for line in bench.text("times").splitlines():
        what, at = line.split()
        events.append((int(at), what == "start"))
    for _, starts in sorted(events):
        now += 1 if starts else -1
        most = max(most, now)
    assert now == 0
    return most


@pytest.mark.parametrize(
    ("needs", "options", "most"),
    [
        ("{cores: 2}", "--cores 2", 1),
        ("{cores: 1}", "--cores 2", 2),
        ("{cores: 0.5}", "--cores 2", 4),
        ("{cores: 0.1, memory: 60MB}", "--memory 100MB", 1),
        ("{cores: 0.1, licence: 1}", "--tag licence=1", 1),
        ("{cores: 0.1, licence: 1}", "--tag licence=2", 2),
        ("{cores: 0.5, ssd: 1}", "--tag ssd --cores 2", 4),
    ],
)
def test_needs_are_never_over_committed(bench: Bench, needs: str, options: str, most: int) -> None:
    """No more than fit at once; and as many as fit, or the first ones would wait in vain."""
    times = bench.directory / "times"
    times.touch()
    bench.flow(f"""\
        tasks:
          a:
            for: {{i: 1..6}}
            run: |
              echo start $(date +%s%N) >> {times}
              until test $(grep -c start {times}) -ge {most}; do sleep 0.02; done
              sleep 0.05
              echo end $(date +%s%N) >> {times}
            needs: {needs}
            timeout: 1 min
        """)
    bench.run(*options.split())
    assert overlap_max(bench) == most


# -- traces --------------------------------------------------------------------------------------


def trace(runtime_s: float) -> str:
    """A diamond in WfFormat 1.5."""
    names = ["split", "left_1", "right_2", "merge"]
    parents = {"left_1": ["split"], "right_2": ["split"], "merge": ["left_1", "right_2"]}
    tasks = [
        {
            "name": name,
            "id": name,
            "parents": parents.get(name, []),
            "children": [child for child, above in parents.items() if name in above],
            "inputFiles": ["there-is-no-such-file"],
            "outputFiles": [f"{name}.out"],
        }
        for name in names
    ]
    ran = [{"id": name, "runtimeInSeconds": runtime_s, "coreCount": 48} for name in names]
    files = [{"id": f"{name}.out", "sizeInBytes": 10} for name in names]
    return json.dumps(
        {
            "name": "diamond",
            "schemaVersion": "1.5",
            "workflow": {
                "specification": {"tasks": tasks, "files": files},
                "execution": {"makespanInSeconds": 3, "executedAt": "", "tasks": ran},
            },
        }
    )


def test_pretending_a_trace(bench: Bench) -> None:
    bench.write({"t.json": trace(600.0)})
    assert bench("validate", "t.json", "--pretend", "--json").json["levels"] == 3
    result = bench.run("--pretend", "--speed", "10000", flow="t.json")
    assert result["tasks"]["succeeded"] == 4
    assert result["elapsed_s"] >= 3 * 600 / 10_000, "three levels, each as long as its runtime"
    took = {t["task"]: t["elapsed_s"] for t in bench("show", "--tasks", "--json").json["listed"]}
    assert all(seconds >= 0.06 for seconds in took.values())
    assert sorted(os.listdir(bench.directory)) == [".sureline", "t.json"], "no files are made"


def test_a_written_trace_runs_like_the_workflow_it_was_made_of(bench: Bench) -> None:
    from sureline.workflow.read import read_workflow
    from sureline.workflow.wfformat import encode, from_graph

    bench.write({"in.txt": "1 2 3\n"})
    bench.flow("""\
        tasks:
          count: {run: "wc -w < in.txt > n", inputs: [in.txt], outputs: [n]}
          plain: {run: cp n copy, inputs: [n], outputs: [copy]}
          last: {run: 'echo done > last', outputs: [last], after: [plain]}
        """)
    graph = read_workflow(Path("w.yaml"), directory=bench.directory).graph
    (bench.directory / "w.json").write_bytes(encode(from_graph(graph)))
    assert bench.run(flow="w.json")["tasks"]["succeeded"] == 3
    assert (bench.text("copy").strip(), bench.text("last")) == ("3", "done\n")


# -- looking at runs -----------------------------------------------------------------------------


def test_selectors(bench: Bench) -> None:
    bench.flow("name: good\ntasks:\n  a: {run: 'true'}\n")
    bench.flow("name: bad\ntasks:\n  a: {run: 'false'}\n", "bad.yaml")
    runs = [
        bench.run()["run"],
        bench.run(flow="bad.yaml", code=1)["run"],
        bench.run()["run"],
    ]

    def selected(selector: str) -> int:
        return runs.index(bench("show", selector, "--json").json["run"])

    assert selected("last") == selected("-1") == selected("good") == 2
    assert selected("last-failed") == selected("-2") == selected("bad") == 1
    assert selected("-3") == 0
    for k, run in enumerate(runs):
        assert selected(run) == k
    assert selected(shortest_prefix(runs[0], runs)) == 0
    assert runs.index(bench("show", "--json").json["run"]) == 2, "the last one by default"
    assert bench("logs", "-2", "a").code == 0
    assert bench("cancel", "-3", "--json").json["run"] == runs[0]


def shortest_prefix(name: str, names: list[str]) -> str:
    for length in range(1, len(name)):
        if sum(other.startswith(name[:length]) for other in names) == 1 and name[:length] != "good":
            return name[:length]
    return name


def test_long_logs_are_whole(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: 'seq 1 180000; seq 1 180000 >&2; echo end >&2'}\n")
    bench.run()
    whole = "".join(f"{k}\n" for k in range(1, 180_001))
    assert len(whole) > 1_000_000
    answer = bench("logs", "last", "a")
    assert answer.out == whole
    assert answer.err == whole + "end\n"
    data = bench("logs", "last", "a", "--json").json
    assert (data["stdout"], data["stderr"]) == (whole, whole + "end\n")


def test_logs_of_a_reused_task_are_those_of_its_run(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: echo said}\n")
    bench.run()
    bench.run()
    assert bench("logs", "last", "a").out == "said\n"


def test_show_while_running(bench: Bench) -> None:
    gate = bench.directory / "gate"
    bench.flow(f"""\
        tasks:
          a: {{run: 'until test -e {gate}; do sleep 0.02; done'}}
          b: {{run: 'true', after: [a]}}
        """)
    going = bench.start("run", "w.yaml", "--json")
    wait_until(lambda: bench.running() == ["a"], going)
    shown = bench("show", "--json").json
    assert shown["state"] == "running"
    assert shown["by_state"] == {"running": 1, "waiting": 1}
    assert bench("show", "last", "a", "--json").json["state"] == "running"
    assert bench("runs", "--json").json["runs"][0]["state"] == "running"
    answer = bench("resume")
    assert answer.code == 2
    assert "is still running in another process; stop it with: sureline cancel" in answer.err
    answer = bench("logs", "last", "a")
    assert answer.code == 2
    assert "task 'a' of run" in answer.err and "is running and has no logs" in answer.err
    gate.touch()
    out, _ = going.communicate()
    assert json.loads(out)["state"] == "succeeded"
    assert bench("show", "--json").json["state"] == "succeeded"


def test_another_working_directory(bench: Bench) -> None:
    bench.write(
        {
            "flows/w.yaml": "tasks:\n  a: {run: cp in.txt out, inputs: [in.txt], outputs: [out]}\n",
            "data/in.txt": "x\n",
        }
    )
    result = bench.run("-C", "data", flow="flows/w.yaml")
    assert result["state"] == "succeeded"
    assert bench.text("data/out") == "x\n"
    assert sorted(os.listdir(bench.directory)) == ["data", "flows"]
    assert (bench.directory / "data/.sureline").is_dir()
    assert bench("runs", "-C", "data", "--json").json["runs"][0]["run"] == result["run"]
    assert bench("show", "--directory", "data").code == 0


def test_a_file_beside_the_workflow_is_hinted_at(bench: Bench) -> None:
    bench.write(
        {
            "flows/w.yaml": "tasks:\n  a: {run: cat in.txt, inputs: [in.txt]}\n",
            "flows/in.txt": "x\n",
        }
    )
    answer = bench("run", "flows/w.yaml")
    assert answer.code == 2
    assert "run with `-C flows`" in answer.err
    assert bench("run", "flows/w.yaml", "-C", "flows").code == 0


def test_an_absolute_path_and_a_file_without_a_suffix(bench: Bench) -> None:
    bench.write({"flow": "tasks:\n  a: {run: 'true'}\n"})
    assert bench.run(flow=str(bench.directory / "flow"))["state"] == "succeeded"


def test_a_workflow_from_the_standard_input(bench: Bench) -> None:
    flow = "tasks:\n  a: {run: echo x > out, outputs: [out]}\n"
    ended = bench.process("run", "-", "--json", input=flow)
    assert ended.returncode == 0, ended.stderr
    assert bench.text("out") == "x\n"
    ended = bench.process("run", "-", input="tasks:\n  a: {rum: x}\n")
    assert ended.returncode == 2
    assert "-:2: task 'a': unknown key 'rum'; did you mean 'run'?" in ended.stderr


def test_two_runs_at_once_do_not_disturb_each_other(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {for: {i: 1..5}, run: 'echo {{i}} > a.{{i}}', outputs: ['a.{{i}}']}\n")
    bench.flow(
        "tasks:\n  b: {for: {i: 1..5}, run: 'echo {{i}} > b.{{i}}', outputs: ['b.{{i}}']}\n",
        "v.yaml",
    )
    both = [bench.start("run", name, "--json") for name in ("w.yaml", "v.yaml")]
    for going in both:
        out, err = going.communicate()
        assert going.returncode == 0, err
        assert json.loads(out)["tasks"]["succeeded"] == 5
    assert [bench.text(f"{x}.{k}") for x in "ab" for k in range(1, 6)] == [
        f"{k}\n" for _ in "ab" for k in range(1, 6)
    ]


def test_a_run_that_ends_while_another_starts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting run looks at the locks of others; one of them may go away just then."""
    from sureline.journal import locks

    other = bench.directory / "work" / "other"
    held = locks.RunLock.acquire(other)
    assert held is not None

    def it_ends(seconds: float) -> None:
        shutil.rmtree(other, ignore_errors=True)
        held.release()

    monkeypatch.setattr(locks.time, "sleep", it_ends)
    mine = locks.RunLock.acquire(other)
    assert mine is not None
    mine.release()


def test_shell_syntax_only_where_it_is(bench: Bench) -> None:
    bench.flow(
        """\
        tasks:
          direct: {run: cp in.txt 'a b', inputs: [in.txt], outputs: ['a b']}
          braces: {run: 'echo {{{{x}} > braces', outputs: [braces]}
          several:
            run: |
              echo one > several
              false
              echo two >> several
            outputs: [several]
        """,
        **{"in.txt": "x\n"},
    )
    bench.run(code=1)
    assert bench.states() == {"direct": "succeeded", "braces": "succeeded", "several": "failed"}
    assert bench.text("a b") == "x\n"
    assert bench.text("braces") == "{{x}}\n"
