"""A call is made again when anything of the user's that it can reach has changed, and only then.

All variants are calls of one script, which is run three times: at first, unchanged, and after an
edit of what each variant depends on. Every value must be right every time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_bench import PATIENCE_S

from sureline.journal.store import Journal


class Variant(NamedTuple):
    """`code` defines `v(x)` or makes `call`; `old` becomes `new` in the file that has it."""

    name: str
    code: str
    old: str
    new: str
    values: tuple[Any, Any]
    files: dict[str, str] = {}  # noqa: RUF012 - never changed
    again: bool = True
    using: str = ""
    argument: str = "3"


NORM = "def norm(x):\n    return x + 1\n"
EDIT = ("x + 1", "x + 2", (4, 5))
VARIANTS = [
    Variant("imported", "from {n} import norm\ndef v(x): return norm(x)", *EDIT, {"": NORM}),
    Variant("inside", "def v(x):\n    from {n} import norm\n    return norm(x)", *EDIT, {"": NORM}),
    Variant("inside2", "def v(x):\n    import {n}\n    return {n}.norm(x)", *EDIT, {"": NORM}),
    Variant("module", "import {n}\ndef v(x): return {n}.norm(x)", *EDIT, {"": NORM}),
    Variant("itself", "from {n} import norm as v", *EDIT, {"": NORM}),
    Variant(
        "chain",
        "from {n} import outer\ndef v(x): return outer(x)",
        *EDIT,
        {"": "from {n}_deep import norm\ndef outer(x): return norm(x)\n", "_deep": NORM},
    ),
    Variant(
        "package",
        "from {n}.inner.work import norm\ndef v(x): return norm(x)",
        *EDIT,
        {"/__init__": "", "/inner/__init__": "", "/inner/work": NORM},
    ),
    Variant(
        "relative",
        "from {n}.front import norm2\ndef v(x): return norm2(x)",
        *EDIT,
        {
            "/__init__": "",
            "/back": NORM,
            "/front": "from .back import norm\ndef norm2(x): return norm(x)\n",
        },
    ),
    Variant(
        "module_constant",
        "import {n}\ndef v(x): return x + {n}.STEP",
        "STEP = 1",
        "STEP = 2",
        (4, 5),
        {"": "STEP = 1\n"},
    ),
    Variant(
        "partial",
        "import functools\nfrom {n} import plus\nv = functools.partial(plus, 1)\n",
        "x + y + 0",
        "x + y + 1",
        (4, 5),
        {"": "def plus(y, x):\n    return x + y + 0\n"},
    ),
    Variant(
        "global_partial",
        "import functools\ndef {n}_add(y, x): return x + y + 0\n"
        "{n}_part = functools.partial({n}_add, 1)\ndef v(x): return {n}_part(x)",
        "x + y + 0",
        "x + y + 1",
        (4, 5),
    ),
    Variant(
        "global_list",
        "{n}_steps = [[1, 'one'], [2]]\ndef v(x): return x + {n}_steps[0][0]",
        "[[1, 'one']",
        "[[2, 'one']",
        (4, 5),
    ),
    Variant(
        "global_array",
        "import numpy\n{n}_array = numpy.arange(5) * 1\ndef v(x): return int({n}_array[x])",
        "arange(5) * 1",
        "arange(5) * 2",
        (3, 6),
    ),
    Variant(
        "global_object",
        "class {n}_Step:\n    def __init__(self, by): self.by = by\n"
        "{n}_step = {n}_Step(1)\ndef v(x): return x + {n}_step.by",
        "_Step(1)",
        "_Step(2)",
        (4, 5),
    ),
    Variant(
        "base_class",
        "class {n}_Base:\n    def go(self, x): return x + 1\n"
        "class {n}_Child({n}_Base): pass\ndef v(x): return {n}_Child().go(x)",
        *EDIT,
    ),
    Variant(
        "imported_base",
        "import {n}\nclass {n}_Child({n}.Base): pass\ndef v(x): return {n}_Child().go(x)",
        *EDIT,
        {"": "class Base:\n    def go(self, x): return x + 1\n"},
    ),
    Variant(
        "decorated",
        "import functools\ndef {n}_twice(f):\n    @functools.wraps(f)\n"
        "    def inner(x): return f(f(x))\n    return inner\n"
        "@{n}_twice\ndef v(x): return x + 1",
        "x + 1",
        "x + 2",
        (5, 7),
    ),
    Variant(
        "decorator",
        "from {n} import often\n@often\ndef v(x): return x + 1",
        "f(f(x))",
        "f(f(f(x)))",
        (5, 6),
        {"": "def often(f):\n    def inner(x): return f(f(x))\n    return inner\n"},
    ),
    Variant(
        "cached",
        "import functools\n@functools.lru_cache(maxsize=None)\n"
        "def {n}_fib(k): return {n}_fib(k - 1) + {n}_fib(k - 2) if k > 1 else k\n"
        "def v(x): return {n}_fib(x + 4)",
        "if k > 1 else k",
        "if k > 1 else 2 * k",
        (13, 26),
    ),
    Variant("is_cached", "import functools\n@functools.cache\ndef v(x): return x + 1", *EDIT),
    Variant(
        "property",
        "class {n}_Box:\n    @property\n    def side(self): return 1\n"
        "def v(x): return x + {n}_Box().side",
        "return 1",
        "return 2",
        (4, 5),
    ),
    Variant(
        "static",
        "class {n}_Tool:\n    @staticmethod\n    def go(x): return x + 1\n"
        "    @classmethod\n    def twice(cls, x): return cls.go(x)\n"
        "def v(x): return {n}_Tool.twice(x)",
        *EDIT,
    ),
    Variant(
        "dataclass",
        "import dataclasses\n@dataclasses.dataclass\nclass {n}_Point:\n    x: int = 1\n"
        "def v(x): return x + {n}_Point().x",
        "x: int = 1",
        "x: int = 2",
        (4, 5),
    ),
    Variant(
        "enum",
        "import enum\nclass {n}_Kind(enum.Enum):\n    ONE = 1\n"
        "def v(x): return x + {n}_Kind.ONE.value",
        "ONE = 1",
        "ONE = 2",
        (4, 5),
    ),
    Variant(
        "lambda", "{n}_add = lambda x: x + 1\nv = lambda x: {n}_add(x)", *EDIT
    ),
    Variant(
        "closure",
        "def {n}_make(by):\n    def inner(x): return x + by\n    return inner\nv = {n}_make(1)",
        "_make(1)",
        "_make(2)",
        (4, 5),
    ),
    Variant(
        "argument_class",
        "from {n} import Model\ndef v(model): return model.go(3)",
        *EDIT,
        {"": "class Model:\n    def go(self, x): return x + 1\n"},
        argument="Model()",
    ),
    Variant(
        "argument_own_class",
        "class {n}_Model:\n    def go(self, x): return x + 1\ndef v(model): return model.go(3)",
        *EDIT,
        argument="{n}_Model()",
    ),
    Variant(
        "argument_function",
        "def {n}_go(x): return x + 1\ndef v(f): return f(3)",
        *EDIT,
        argument="{n}_go",
    ),
    Variant("argument_lambda", "def v(f): return f(3)", *EDIT, argument="lambda x: x + 1"),
    Variant(
        "result_class",
        "class {n}_Thing:\n    def go(self): return 1\n    def __init__(self): self.k = 3\n"
        "def {n}_make(): return {n}_Thing()\ndef v(thing): return thing.k + thing.go()",
        "return 1",
        "return 2",
        (4, 5),
        argument="flow.call({n}_make)",
    ),
    Variant(
        "data_file",
        "from pathlib import Path\ndef v(x): return x + int(Path('{n}.txt').read_text())",
        "1",
        "2",
        (4, 5),
        {".txt": "1\n"},
        using="depends='{n}.txt'",
    ),
    Variant(
        "by_name",
        "import importlib\ndef v(x): return importlib.import_module('{n}').norm(x)",
        *EDIT,
        {"": NORM},
        using="depends=__import__('{n}')",
    ),
    Variant(
        "cached_property",
        "import functools, {n}\nclass {n}_C:\n    @functools.cached_property\n"
        "    def k(self): return {n}.norm(0)\ndef v(x): return {n}_C().k + x",
        *EDIT,
        {"": NORM},
    ),
    Variant(
        "dispatched",
        "import functools, {n}\n@functools.singledispatch\ndef {n}_d(x): return 0\n"
        "@{n}_d.register\ndef _(x: int): return {n}.norm(x)\n"
        "@{n}_d.register\ndef _(x: list): return sum({n}_d(one) for one in x)\n"
        "def v(x): return {n}_d([x])",
        *EDIT,
        {"": NORM},
    ),
    Variant(
        "dispatched_here",
        "import functools\n@functools.singledispatch\ndef {n}_d(x): return 0\n"
        "@{n}_d.register\ndef _(x: int): return x + 1\ndef v(x): return {n}_d(x)",
        *EDIT,
    ),
    Variant("comment", "from {n} import norm\ndef v(x): return norm(x)", "#", "# more", (4, 4),
            {"": NORM + "# nothing\n"}, again=False),
    Variant("untouched", "from {n} import norm\ndef v(x): return norm(x)", "", "", (4, 4),
            {"": NORM}, again=False),
]  # fmt: skip


def write(directory: Path, *, changed: bool) -> None:
    lines = [
        "from sureline import Workflow",
        "import json",
        "flow = Workflow('variants')",
        "h = {}",
    ]
    for one in VARIANTS:
        n = f"v_{one.name}"
        code, files = one.code, dict(one.files)
        argument = one.argument
        if changed and one.old:
            edited = [one.old in text for text in (code, argument, *files.values())]
            assert sum(edited) == 1, f"{one.name}: the edit must hit one place"
            code, argument = code.replace(one.old, one.new), argument.replace(one.old, one.new)
            files = {name: text.replace(one.old, one.new) for name, text in files.items()}
        for suffix, text in files.items():
            path = directory / (f"{n}{suffix}" + ("" if "." in suffix else ".py"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{n}", n))
        lines += [code.replace("{n}", n), f"settings = dict({one.using})".replace("{n}", n)]
        call = f"flow.using(name='{one.name}', **settings).call(v, {argument})"
        lines += [f"h['{one.name}'] = {call}".replace("{n}", n)]
    lines += ["results = flow.run()", "print(json.dumps({k: results[v] for k, v in h.items()}))"]
    (directory / "script.py").write_text("\n".join(lines) + "\n")


class Ran(NamedTuple):
    values: dict[str, Any]
    made: set[str]


def run(directory: Path) -> Ran:
    ended = subprocess.run(
        [sys.executable, "script.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    with Journal.open(directory / ".sureline", create=False, read_only=True) as journal:
        newest = journal.runs()[-1].run
        made = {one.task for one in journal.commits(newest) if one.outcome == "succeeded"}
    return Ran(json.loads(ended.stdout), made)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Ran]]]:
    directory = tmp_path_factory.mktemp("variants")
    write(directory, changed=False)
    ran = [run(directory), run(directory)]
    write(directory, changed=True)
    ran.append(run(directory))
    yield directory, ran


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_a_call_is_made_again_exactly_when_something_changed(
    three: tuple[Path, list[Ran]], variant: Variant
) -> None:
    name = variant.name
    first, same, changed = three[1]
    assert first.values[name] == variant.values[0]
    assert name in first.made
    assert same.values[name] == variant.values[0]
    assert name not in same.made, "nothing has changed"
    assert changed.values[name] == variant.values[1], "stale"
    assert (name in changed.made) is variant.again


def explained(directory: Path, task: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "sureline", "explain", task],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("imported", "not reused: module v_imported changed."),
        ("global_list", "not reused: global v_global_list_steps changed."),
        ("base_class", "not reused: class v_base_class_Base changed."),
        ("data_file", "not reused: the input v_data_file.txt has another content."),
    ],
)
def test_explain_names_what_changed(three: tuple[Path, list[Ran]], task: str, says: str) -> None:
    assert says in explained(three[0], task)


CLASSES = """\
    import dataclasses, enum, json, sys
    from sureline import Workflow

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        of: Colour

    def make(): return Point(3, Colour.RED)
    def judge(point): return (point.of is Colour.RED, point == Point(3, Colour.RED), type(point))
    def pick(k): return list(Colour)[k]

    flow = Workflow("classes")
    made, red = flow.call(make), flow.call(pick, 0)
    judged = flow.call(judge, made)
    also = flow.call(judge, Point(3, Colour.RED))
    results = flow.run()
    print(json.dumps([
        results[made] == Point(3, Colour.RED), type(results[made]) is Point,
        results[red] is Colour.RED, isinstance(results[made], Point),
        results[judged][:2] == (True, True), results[judged][2] is Point,
        results[also][:2] == (True, True),
    ]))
    print(results.outcome.tasks.reused, file=sys.stderr)
    """


def test_classes_of_the_script_come_back_as_themselves(tmp_path: Path) -> None:
    """Also in a later process, from results that an earlier one made."""
    (tmp_path / "script.py").write_text(textwrap.dedent(CLASSES))
    for reused in (0, 4):
        ended = subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        assert json.loads(ended.stdout) == [True] * 7
        assert int(ended.stderr) == reused


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return open('data.txt').read()", "it read data.txt, which depends= does not name"),
        ("return open('code.py').read()", "it read code.py, which depends= does not name"),
        ("import subprocess; return subprocess.run(['true']).returncode", "it started true"),
        ("import importlib; return importlib.import_module('json').__name__", "by name"),
    ],
)
def test_what_cannot_be_followed_is_not_reused_and_says_why(
    tmp_path: Path, body: str, why: str
) -> None:
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "code.py").write_text("K = 1")
    (tmp_path / "script.py").write_text(
        "from sureline import Workflow\n"
        f"def v():\n    {body}\n"
        "flow = Workflow('unkept')\nh = flow.using(name='v').call(v)\n"
        "print('\"x\"' if flow.run()[h] is not None else 0)\n"
    )
    for _ in range(2):
        assert run(tmp_path).made == {"v"}
    assert "Its result will not be reused: " in explained(tmp_path, "v")
    assert why in explained(tmp_path, "v")


def test_what_cannot_travel_to_a_worker_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import threading\nfrom sureline import Workflow\n"
        "GUARD = threading.Lock()\n"
        "def guarded(x):\n    with GUARD:\n        return x\n"
        "Workflow('w').call(guarded, 1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "guarded cannot be sent to a worker: its global GUARD" in last, ended.stderr
