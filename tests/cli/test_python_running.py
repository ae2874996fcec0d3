"""`Workflow.run` with all that the command has; runs in the background, in loops, interrupted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cli_bench import PATIENCE_S, Bench, wait_until

from sureline import RunFailedError, Workflow
from sureline.compose.terms import TermsRefusedError
from sureline.flow.notebook import html_of
from sureline.flow.running import Status
from sureline.journal.store import Journal
from sureline.workflow.mistakes import UserError


@pytest.fixture(autouse=True)
def in_an_empty_directory(bench: Bench) -> None:
    """Every workflow here runs in the current directory."""


def gate(here: str, value: int = 1) -> int:
    Path(here, "arrived").touch()
    while not os.path.exists(f"{here}/open"):
        time.sleep(0.02)
    return value


def double(x: int) -> int:
    return 2 * x


def gated() -> tuple[Workflow, object, object]:
    flow = Workflow("gated")
    first = flow.using(name="first").call(double, 4)
    second = flow.using(name="second", after=first).call(gate, os.getcwd(), 5)
    return flow, first, second


def has_arrived() -> bool:
    return os.path.exists("arrived")


def open_gate() -> None:
    Path("open").touch()


def test_a_submitted_run_is_followed_and_awaited() -> None:
    flow, first, second = gated()
    running = flow.submit(within="1h")
    wait_until(lambda: os.path.exists("arrived"))
    assert not running.done
    wait_until(lambda: running.status.succeeded == 1)
    status = running.status
    assert (status.state, status.total, status.failed) == ("running", 2, 0)
    with pytest.raises(TimeoutError):
        running.wait(0.01)
    wait_until(lambda: running.surety is not None)
    assert "gated" in running._repr_html_()
    Path("open").touch()
    results = running.wait()
    assert (results[first], results[second]) == (8, 5)  # type: ignore[index]  # handles
    assert running.status.state == "succeeded"
    assert running.run == results.run


def test_a_cancelled_run_keeps_what_was_done_and_goes_on_later() -> None:
    flow, first, second = gated()
    running = flow.submit()
    wait_until(lambda: os.path.exists("arrived"))
    running.cancel()
    with pytest.raises(RunFailedError, match="cancelled") as caught:
        running.wait()
    assert caught.value.results[first] == 8  # type: ignore[index]  # a handle
    Path("open").touch()
    again = flow.run()
    assert again[second] == 5  # type: ignore[index]  # a handle
    assert again.outcome.tasks.reused == 1


def test_in_an_event_loop_other_things_go_on() -> None:
    async def main() -> tuple[int, int]:
        flow, _, second = gated()
        ticks = 0
        task = asyncio.ensure_future(flow.run_async())
        while not has_arrived():
            ticks += 1
            await asyncio.sleep(0.01)
        open_gate()
        return (await task)[second], ticks  # type: ignore[index]  # a handle

    value, ticks = asyncio.run(main())
    assert value == 5
    assert ticks > 0


def test_a_cancelled_await_stops_the_run() -> None:
    async def main() -> None:
        flow, _, _ = gated()
        task = asyncio.ensure_future(flow.run_async())
        await asyncio.to_thread(wait_until, has_arrived)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_ctrl_c_in_a_script_is_a_keyboard_interrupt(bench: Bench) -> None:
    bench.write(
        {
            "script.py": """\
            import os, signal, time
            from sureline import Workflow
            # a shell's background jobs ignore Ctrl-C, and this may be one
            signal.signal(signal.SIGINT, signal.default_int_handler)
            def double(x): return 2 * x
            def forever():
                open("arrived", "w").close()
                time.sleep(600)
            flow = Workflow("w")
            first = flow.using(name="first").call(double, 4)
            flow.using(name="second", after=first).call(forever)
            try:
                flow.run()
            except KeyboardInterrupt:
                print("interrupted")
            """
        }
    )
    going = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=bench.directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: os.path.exists("arrived"))
    going.send_signal(signal.SIGINT)
    out, _ = going.communicate(timeout=PATIENCE_S)
    assert (going.returncode, out) == (0, "interrupted\n")
    shown = bench("show", "--json").json
    assert (shown["state"], bench.states()["first"]) == ("cancelled", "succeeded")


def test_only_what_the_targets_need() -> None:
    flow = Workflow("targets")
    a, b = flow.call(double, 1), flow.call(double, 2)
    both = flow.call(sum, [a, b])
    flow.call(gate, "/nowhere")
    results = flow.run(targets=both)
    assert results[both] == 6
    assert results.outcome.tasks.total == 3
    assert flow.run(targets=["double:0"]).outcome.tasks.total == 1
    with pytest.raises(UserError, match="no task called 'nobody'"):
        flow.run(targets="nobody")


def test_terms_that_cannot_be_met_are_refused_and_leave_nothing() -> None:
    flow = Workflow("slow")
    flow.using(takes="50s .. 60s .. 70s").call(double, 1)
    with pytest.raises(TermsRefusedError, match=r"within=6\ds would do") as caught:
        flow.run(within="5s")
    assert caught.value.refusal is not None
    assert caught.value.refusal.within_s > 50
    assert os.listdir(".") == []
    with pytest.raises(UserError, match="say the same thing twice"):
        flow.run(within="5s", by="18:00")
    assert flow.run(within="5s", anyway=True).outcome.state == "succeeded"


def test_progress_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    flow = Workflow("shown")
    flow.call(double, 1)
    flow.run()
    assert capsys.readouterr().err == ""
    flow.run(progress="lines")
    assert "1 task" in capsys.readouterr().err
    with pytest.raises(UserError, match="progress='often'"):
        flow.run(progress="often")


def test_the_display_of_a_notebook_says_what_there_is() -> None:
    text = html_of(Status("a<b", "running", 10, 5, 2, 1, 0.87))
    for part in ("a&lt;b", "5 succeeded", "2 reused", "1 failed", "of 10", "87%", "width:50.00%"):
        assert part in text
    assert "sureline report a&lt;b" in text


NOTEBOOK = textwrap.dedent("""\
    import os, time
    from sureline import Workflow
    def double(x): return 2 * x
    def gate(x):
        open("arrived", "w").close()
        while not os.path.exists("open"): time.sleep(0.02)
        return x + 1
    flow = Workflow("cells")
    first = flow.using(name="first").call(double, 4)
    second = flow.using(name="second").call(gate, first)
    results = flow.run()
    print(results[second])
    """)


def test_a_real_notebook_runs_is_stopped_and_goes_on(bench: Bench) -> None:
    """Jupyter's own kernel: the display is drawn, the stop button stops, a second try goes on."""
    jupyter = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    manager, client = jupyter.manager.start_new_kernel(cwd=str(bench.directory))
    try:
        client.execute(NOTEBOOK)
        wait_until((bench.directory / "arrived").exists)
        manager.interrupt_kernel()
        reply = executed(client)
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        heard = iopub(client)
        drawn = [
            one["content"]["data"]["text/html"] for one in heard if "display" in one["msg_type"]
        ]
        assert any("1 succeeded of 2" in text for text in drawn), drawn
        assert any(one["msg_type"] == "update_display_data" for one in heard)
        (bench.directory / "open").touch()
        client.execute("results = flow.run(); print(results[second], results.outcome.tasks.reused)")
        assert executed(client)["status"] == "ok"
        streams = [one["content"] for one in iopub(client) if one["msg_type"] == "stream"]
        assert [one["text"] for one in streams if one["name"] == "stdout"] == ["9 1\n"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def executed(client: object) -> dict[str, str]:
    """The answer to a cell."""
    while True:
        message = client.get_shell_msg(timeout=PATIENCE_S)  # type: ignore[attr-defined]  # jupyter's
        if message["msg_type"] == "execute_reply":
            return message["content"]


def iopub(client: object) -> list[dict[str, object]]:
    """All messages of one cell, to its end."""
    heard: list[dict[str, object]] = []
    while True:
        message = client.get_iopub_msg(timeout=PATIENCE_S)  # type: ignore[attr-defined]  # jupyter's
        heard.append(message)
        is_idle = message["content"].get("execution_state") == "idle"
        if is_idle and any(one["msg_type"] == "execute_input" for one in heard):
            return heard


def test_a_strategy_is_chosen_and_a_mistake_in_it_is_told(tmp_path: Path) -> None:
    flow = Workflow("chosen")
    flow.task("a", run="echo x > a", outputs="a")
    flow.run(tmp_path, strategy="heft")
    with Journal.open(tmp_path / ".sureline", create=False, read_only=True) as journal:
        first = next(journal.events(journal.runs()[-1].run)).event
        assert first.options["strategy"] == "heft"
    with pytest.raises(UserError, match="did you mean spread"):
        flow.run(tmp_path, strategy="spred")
    with pytest.raises(UserError, match="has no setting 'x'"):
        flow.run(tmp_path, strategy="spread", settings={"x": 1})
