"""The interpreter that makes the Python calls of a run that came from another machine.

It stands in a directory of its own with the call's inputs, and may write nowhere else. Before it
loads anything it compares itself with the one in which the call was described; a difference makes
this machine unfit for the call, and is told in one sentence. What the call looks for in the user's
directory and did not name is not here: then it fails, also if it did not mind, because at home
it would have seen more.

It is asked again for the run's next call, so that code stays loaded. Results of other calls come
from machines of others: they are read as data. One that is more than data may do anything here; so
after that this interpreter is not used again.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from sureline.peer.jobs import CALL_DIRECTORY, MODULES, LoneCall
from sureline.peer.slot_lone import (
    AGAIN,
    LINE_BYTES_MAX,
    ORDER,
    RESULT,
    SPENT,
    STANDS_FOR_DIRECTORY,
    STANDS_FOR_FILE,
    WORD,
    Order,
    Word,
)
from sureline.workflow.mistakes import SurelineError

if TYPE_CHECKING:
    from sureline.peer.code import Code
    from sureline.peer.packed import Buffer

NOTED_MAX = 100
_PR_SET_PDEATHSIG = 1
_decode = msgspec.msgpack.Decoder(Order | None).decode


def main(line_fd: int) -> None:
    line = socket.socket(fileno=line_fd)
    line.set_inheritable(False)
    # What a call forks must not hold on to it, or this process's death would go unnoticed.
    os.register_at_fork(after_in_child=line.close)
    _die_with_parent()
    here, inherited = os.getcwd(), dict(os.environb)
    calls: CallsOfRun | None = None
    while said := line.recv(LINE_BYTES_MAX):
        order = _decode(said) or _order_in_file(here)
        own = {os.fsencode(name): os.fsencode(value) for name, value in order.env.items()}
        _set_environment(inherited | own)
        os.chdir(here)
        word = _unfit(order.call)
        if word is None:
            calls = calls or CallsOfRun(here)
            word = calls.make(order.call, order.inputs)
        told = msgspec.msgpack.encode(word)
        if len(told) >= LINE_BYTES_MAX:
            os.makedirs(f"{here}/{CALL_DIRECTORY}", exist_ok=True)
            with open(f"{here}/{WORD}", "xb") as file:
                file.write(told)
            told = b""
        _flush()
        line.send((SPENT if calls is None or calls.spent else AGAIN) + told)


def _order_in_file(here: str) -> Order:
    with open(f"{here}/{ORDER}", "rb") as file:
        order: Order | None = _decode(file.read())
    assert order is not None
    return order


def _set_environment(wanted: dict[bytes, bytes]) -> None:
    """Most of it is as it was."""
    now = dict(os.environb)
    for name in now.keys() - wanted.keys():
        del os.environb[name]
    for name, value in wanted.items():
        if now.get(name) != value:
            os.environb[name] = value


def _die_with_parent() -> None:
    """A slot that is killed cannot tell this process, which may stand still, that it is over."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the call closed it


# -- comparing -----------------------------------------------------------------------------------


def _unfit(call: LoneCall) -> Word | None:
    has = ".".join(map(str, sys.version_info[:2]))
    if call.python and has != call.python:
        return Word("unfit", f"has Python {has}, and the call was described with {call.python}")
    if not call.packages:
        return None
    from sureline.peer.reach import package_version

    for name, wanted in call.packages.items():
        found = package_version(name)
        if found != wanted:
            other = f"has {name} {found}" if found else f"has no {name}"
            return Word("unfit", f"{other}, and the call was described with {wanted}")
    return None


# -- calling -------------------------------------------------------------------------------------


class CallsOfRun:
    """The calls of one run, one after the other, in the directory `here`."""

    def __init__(self, here: str) -> None:
        from sureline.peer.slot_reads import Reads

        self._here = here
        self._known: dict[str, tuple[Code, str]] = {}
        """By digest; with why results of it are not to be reused."""
        self._modules: set[str] = set()
        self.spent = False
        """Whether something was loaded here that may have been made to harm."""
        sys.dont_write_bytecode = True
        sys.path[:0] = [f"{here}/{MODULES}"]
        sys.path.append(here)
        self._missed = Missed(here)
        self._reads = Reads(f"{here}/{CALL_DIRECTORY}")

    def make(self, call: LoneCall, inputs: list[str]) -> Word:
        if not self._modules.issuperset(inputs):
            self._modules.update(inputs)
            importlib.invalidate_caches()
        self._missed.begin(call, inputs)
        word = self._called(call)
        unkept = self._reads.end(call.function, inputs, self._here)
        if self._missed.paths:
            shown = ", ".join(list(self._missed.paths)[:3])
            return Word(
                "failed",
                f"it reads {shown} of your directory, which did not come with it; name what it "
                "reads with using(inputs=...)",
                trace=word.trace,
            )
        return msgspec.structs.replace(word, unkept=word.unkept or unkept)

    def _called(self, call: LoneCall) -> Word:
        from sureline.peer import code

        called, known = "", None
        try:
            known, unkept = self._code(call.function)
            args, kwargs = self._arguments(call, known)
            self._reads.begin()
            self._missed.active = True
            try:
                value = known.function(*args, **kwargs)
            except BaseException:
                from sureline.peer.shown import shown_call

                called = shown_call(known.function, args, kwargs)
                raise
            finally:
                self._missed.active = False
                os.chdir(self._here)
            pickled, views = code.dump_result(value, known)
            if not views and len(pickled) <= call.inline_bytes:
                return Word("succeeded", result=pickled, unkept=unkept)
            _write_result(pickled, views)
            return Word("succeeded", has_file=True, unkept=unkept)
        except BaseException as error:
            from sureline.peer.calls import describe, dump_error
            from sureline.peer.shown import trace_of

            trace = trace_of(error, called)
            print(trace, end="", file=sys.stderr)
            packed = dump_error(error) if known is None else code.dump_error(error, known)
            return Word("failed", describe(error), error=packed, trace=trace)

    def _code(self, digest: str) -> tuple[Code, str]:
        found = self._known.get(digest)
        if found is None:
            from sureline.peer.packed import unpacked

            data = bytes(self._blob(digest))
            pickled, buffers = unpacked(data, lambda one: self._blob(one.digest))
            known = pickle.loads(pickled, buffers=buffers)
            changed = known.changed()
            why = f"{', '.join(changed)} changed after the call was described" if changed else ""
            found = self._known[digest] = known, why
        return found

    def _arguments(self, call: LoneCall, known: Code) -> tuple[tuple[Any, ...], dict[str, Any]]:
        from sureline.peer import code
        from sureline.peer.packed import bundled, unpacked

        def named(key: str) -> object:
            return known.names[key][0]

        def result_of(task: str) -> object:
            data = call.results.get(task)
            pickled, buffers = (data, ()) if data is not None else bundled(self._long(call, task))
            from sureline.peer import careful

            try:
                return careful.load(pickled, buffers, named, known.modules)
            except SurelineError:
                self.spent = True  # it is more than data
                return code.load(pickled, buffers, named)

        pickled, buffers = unpacked(call.arguments, lambda one: self._blob(one.digest))
        args, kwargs = code.load(pickled, buffers, named, result_of)
        return args, kwargs

    def _long(self, call: LoneCall, task: str) -> Buffer:
        return self._blob(call.files[task])

    def _blob(self, digest: str) -> Buffer:
        from sureline.peer.packed import mapped

        return mapped(f"{self._here}/{CALL_DIRECTORY}/{digest}")


def _write_result(pickled: bytes, views: list[memoryview]) -> None:
    from sureline.peer.packed import bundle

    with open(RESULT, "xb", buffering=0) as file:
        for piece in bundle(pickled, views):
            left = memoryview(piece).cast("B")
            while left:
                left = left[file.write(left) or 0 :]


class Missed:
    """What a call reads of the user's directory, and did not name.

    Names that lie there are here too, but of nothing that can be read: so a call that asks whether
    something exists hears the same as at home, and is caught when it reads it."""

    def __init__(self, here: str) -> None:
        self._here = here
        self.paths: dict[str, None] = {}
        self.active = False
        sys.addaudithook(self._hear)

    def begin(self, call: LoneCall, inputs: Iterable[str]) -> None:
        """Of another call."""
        self._roots = [root for root in (self._here, call.directory) if root]
        self._beside = {name.rstrip("/") for name in call.beside}
        self._named = list(inputs)
        self._wrote: set[str] = set()
        self.paths = {}
        for name in call.beside:
            _pretend(name)

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
            os.mkdir(name, STANDS_FOR_DIRECTORY)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, STANDS_FOR_FILE))
    except OSError:
        pass  # an input has that name
