"""What runs at a site for one task: its inputs put in place, the command, its outputs set aside.

This file is brought to sites as it is, and run there by whatever Python they have: it uses the
standard library only, and nothing newer than Python 3.9.

It is run in a submission's own directory, which has `tasks.json`: a list of tasks, of which
$SURELINE_INDEX names one. The task works in `box.N`, which is new each time, so that an engine may
start it again. Its outputs end as `made.N/0`, `made.N/1`..., directories as tar files, and last of
all `report.N` says how it went. Who finds no report knows that the site failed, not the task: its
exit code is not 0 then.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from typing import Any

TAIL_BYTES = 4096
GRACE_S = 8.0
"""Less than what engines give between their two signals."""
CHANGED = "changed"
"""The outcome of a task that was not begun: an input of the user's at the site is another one."""
Task = dict[str, Any]


def main() -> int:
    index = os.environ["SURELINE_INDEX"]
    with open("tasks.json", encoding="utf-8") as file:
        task = json.load(file)[int(index)]
    box, out = os.path.abspath(f"box.{index}"), os.path.abspath(f"made.{index}")
    for old in (box, out):
        shutil.rmtree(old, ignore_errors=True)
        os.makedirs(old)
    changed = changed_input(task)
    if changed:
        report: dict[str, Any] = {"outcome": CHANGED, "reason": changed}
    else:
        place_inputs(task, box)
        report = run(task, index, box)
    if report["outcome"] == "succeeded":
        report.update(take_outputs(task, box, out))
    shutil.rmtree(box, ignore_errors=True)
    with open(f"report.{index}.new", "w", encoding="utf-8") as file:
        json.dump(report, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"report.{index}.new", f"report.{index}")
    return 0


def changed_input(task: Task) -> str:
    """An input that is used where the user has it, and is not what she registered; '' if none."""
    for path, source, _, sha256 in task["inputs"]:
        if sha256 and not is_whole(source, sha256, task["seen"]):
            return str(path)
    return ""


def is_whole(source: str, sha256: str, seen: str) -> bool:
    """What was hashed once is not hashed again while its size and times are the same."""
    try:
        about = os.stat(source)
        named = repr((source, sha256, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
        mark = os.path.join(seen, "seen." + hashlib.sha256(named.encode()).hexdigest())
        if os.path.exists(mark):
            return True
        hasher = hashlib.sha256()
        with open(source, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                hasher.update(chunk)
    except OSError:
        return False
    if hasher.hexdigest() != sha256:
        return False
    os.makedirs(seen, exist_ok=True)
    open(mark, "wb").close()
    return True


def place_inputs(task: Task, box: str) -> None:
    for path, source, sort, _ in task["inputs"]:
        target = os.path.join(box, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if sort == "tar":
            with tarfile.open(source) as archive:
                archive.extractall(target)  # made by ourselves, of a directory in our store
        elif sort == "link":
            os.symlink(source, target)
        else:
            shutil.copyfile(source, target)
            os.chmod(target, 0o755 if sort == "program" else 0o644)
    for path in task["outputs"]:
        os.makedirs(os.path.dirname(os.path.join(box, path)), exist_ok=True)


def run(task: Task, index: str, box: str) -> dict[str, Any]:
    argv = task["argv"]
    if argv[0] == "bash" and shutil.which("bash") is None:
        argv = ["/bin/sh", "-ec", argv[-1]]
    if task["script"]:
        with open(os.path.join(box, ".sureline-script"), "w", encoding="utf-8") as script:
            script.write(task["script"])
    environment = dict(os.environ, **task["env"])
    began = time.monotonic()
    with open(f"stdout.{index}", "wb") as out, open(f"stderr.{index}", "wb") as err:
        given = os.path.join(box, task["stdin"]) if task["stdin"] else os.devnull
        try:
            with open(given, "rb") as stdin:
                child = subprocess.Popen(
                    argv, cwd=box, env=environment, stdin=stdin, stdout=out, stderr=err
                )
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return {
                "outcome": "failed",
                "exit_code": code,
                "reason": f"cannot run {argv[0]!r}: {error.strerror}",
            }
        signal.signal(signal.SIGALRM, lambda number, frame: child.kill())
        signal.signal(signal.SIGTERM, lambda number, frame: ask_to_end(child))
        late = False
        try:
            child.wait(task["timeout_s"])
        except subprocess.TimeoutExpired:
            late = True
            end(child)
    return report_of(task, index, child.returncode, late, time.monotonic() - began)


def ask_to_end(child: subprocess.Popen[bytes]) -> None:
    """For a signal's handler, which must not wait: who waits for the child already holds its lock,
    and cannot let go of it before we return."""
    child.terminate()
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)


def end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def report_of(task: Task, index: str, code: int, late: bool, took_s: float) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome, reason = "succeeded", ""
    if late:
        outcome, reason = "timeout", f"took longer than its timeout of {task['timeout_s']:g} s"
    elif code:
        outcome = "failed"
        reason = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    return {
        "outcome": outcome,
        "reason": reason,
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "elapsed_s": took_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "stdout": tail(f"stdout.{index}"),
        "stderr": tail(f"stderr.{index}"),
    }


def tail(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def take_outputs(task: Task, box: str, out: str) -> dict[str, Any]:
    missing = [path for path in task["outputs"] if not os.path.exists(os.path.join(box, path))]
    if missing:
        many = "s" if len(missing) > 1 else ""
        reason = f"did not make its output{many} {', '.join(missing[:20])}"
        return {"outcome": "failed", "reason": reason}
    made = []
    for number, path in enumerate(task["outputs"]):
        source, target = os.path.join(box, path), os.path.join(out, str(number))
        if os.path.isdir(source):
            with tarfile.open(target, "w") as archive:
                archive.add(source, ".")
            sort = "tar"
        else:
            shutil.copyfile(source, target)
            sort = "program" if os.access(source, os.X_OK) else "file"
        made.append([path, sort, os.path.getsize(target)])
    return {"made": made}


if __name__ == "__main__":
    sys.exit(main())
