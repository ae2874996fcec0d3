"""The interpreter of one Python call that came from another machine.

It stands in a directory of its own with the call's inputs, and may write nowhere else. Before it
loads anything it compares itself with the one in which the call was described; a difference makes
this machine unfit for the call, and is told in one sentence. What the call looks for in the user's
directory and did not name is not here: then it fails, also if it did not mind, because at home
it would have seen more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from sureline.peer.jobs import CALL_DIRECTORY, MODULES, LoneCall
from sureline.peer.slot_lone import ORDER, RESULT, WORD, Word

NOTED_MAX = 100


def main() -> None:
    with open(ORDER, "rb") as file:
        call, inputs = msgspec.msgpack.decode(file.read(), type=tuple[LoneCall, list[str]])
    here = os.getcwd()
    word = _unfit(call) or _made(call, here, inputs)
    os.chdir(here)
    with open(WORD, "xb") as file:
        file.write(msgspec.msgpack.encode(word))
    sys.stdout.flush()
    sys.stderr.flush()


# -- comparing -----------------------------------------------------------------------------------


def _unfit(call: LoneCall) -> Word | None:
    has = ".".join(map(str, sys.version_info[:2]))
    if call.python and has != call.python:
        return Word("unfit", f"has Python {has}, and the call was described with {call.python}")
    from sureline.peer.reach import package_version

    for name, wanted in call.packages.items():
        found = package_version(name)
        if found != wanted:
            other = f"has {name} {found}" if found else f"has no {name}"
            return Word("unfit", f"{other}, and the call was described with {wanted}")
    return None


# -- calling -------------------------------------------------------------------------------------


def _made(call: LoneCall, here: str, inputs: list[str]) -> Word:
    from sureline.peer.slot_reads import Reads

    sys.dont_write_bytecode = True
    sys.path[:0] = [f"{here}/{MODULES}"]
    sys.path.append(here)
    missed = Missed(here, call, inputs)
    reads = Reads(f"{here}/{CALL_DIRECTORY}")
    word = _called(call, here, reads, missed)
    unkept = reads.end("", inputs, here)
    if missed.paths:
        shown = ", ".join(list(missed.paths)[:3])
        return Word(
            "failed",
            f"it reads {shown} of your directory, which did not come with it; name what it reads "
            "with using(inputs=...)",
            trace=word.trace,
        )
    return msgspec.structs.replace(word, unkept=word.unkept or unkept)


def _called(call: LoneCall, here: str, reads: Any, missed: Missed) -> Word:
    from sureline.peer import code
    from sureline.peer.calls import describe, dump_error
    from sureline.peer.packed import bundle
    from sureline.peer.shown import shown_call, trace_of

    called, known = "", None
    try:
        known, args, kwargs = _loaded(call, here)
        changed = known.changed()
        reads.begin()
        missed.active = True
        try:
            value = known.function(*args, **kwargs)
        except BaseException:
            called = shown_call(known.function, args, kwargs)
            raise
        finally:
            missed.active = False
            os.chdir(here)
        pickled, views = code.dump_result(value, known)
        unkept = f"{', '.join(changed)} changed after the call was described" if changed else ""
        if not views and len(pickled) <= call.inline_bytes:
            return Word("succeeded", result=pickled, unkept=unkept)
        with open(RESULT, "xb", buffering=0) as file:
            for piece in bundle(pickled, views):
                left = memoryview(piece).cast("B")
                while left:
                    left = left[file.write(left) or 0 :]
        return Word("succeeded", has_file=True, unkept=unkept)
    except BaseException as error:
        trace = trace_of(error, called)
        print(trace, end="", file=sys.stderr)
        packed = dump_error(error) if known is None else code.dump_error(error, known)
        return Word("failed", describe(error), error=packed, trace=trace)


def _loaded(call: LoneCall, here: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import pickle

    from sureline.peer import code
    from sureline.peer.packed import Buffer, bundled, mapped, unpacked

    def blob(digest: str) -> Buffer:
        return mapped(f"{here}/{CALL_DIRECTORY}/{digest}")

    def whole(data: bytes) -> tuple[bytes, list[Buffer]]:
        return unpacked(data, lambda one: blob(one.digest))

    pickled, buffers = whole(bytes(blob(call.function)))
    known = pickle.loads(pickled, buffers=buffers)

    def named(key: str) -> object:
        return known.names[key][0]

    def result_of(task: str) -> object:
        data = call.results.get(task)
        if data is not None:
            return code.load(data, (), named)
        return code.load(*bundled(blob(call.files[task])), named)

    pickled, buffers = whole(call.arguments)
    args, kwargs = code.load(pickled, buffers, named, result_of)
    return known, args, kwargs


class Missed:
    """What a call reads of the user's directory, and did not name.

    Names that lie there are here too, but of nothing that can be read: so a call that asks whether
    something exists hears the same as at home, and is caught when it reads it."""

    def __init__(self, here: str, call: LoneCall, inputs: Iterable[str]) -> None:
        self._roots = [root for root in (here, call.directory) if root]
        self._beside = {name.rstrip("/") for name in call.beside}
        self._named = list(inputs)
        self._wrote: set[str] = set()
        self.paths: dict[str, None] = {}
        self.active = False
        for name in call.beside:
            _pretend(name)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active or event not in ("open", "os.listdir", "os.scandir"):
            return
        try:
            if isinstance(args[0], int):
                return
            full = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(args[0] or ".")))
            if event == "open" and _writes(args[1], args[2]):
                self._wrote.add(full)
            elif full not in self._wrote:
                self._read(full)
        except Exception:  # a hook that raises would fail the user's open()
            pass

    def _read(self, full: str) -> None:
        for root in self._roots:
            if full == root:
                for name in sorted(self._beside):
                    self._look_at(name)
            elif full.startswith(f"{root}/"):
                self._look_at(full[len(root) + 1 :])

    def _look_at(self, path: str) -> None:
        if path.partition("/")[0] not in self._beside or len(self.paths) >= NOTED_MAX:
            return
        if not any(path == one or path.startswith(f"{one}/") for one in self._named):
            self.paths[path] = None


def _writes(mode: str | None, flags: int) -> bool:
    if mode is None:
        return flags & os.O_ACCMODE != os.O_RDONLY
    return mode.strip("rbtU") != ""


def _pretend(name: str) -> None:
    """Something of this name is here, and may be replaced, but not read."""
    try:
        if name.endswith("/"):
            os.mkdir(name, 0o300)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o200))
    except OSError:
        pass  # an input has that name
