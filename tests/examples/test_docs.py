"""What the documents say of commands, options, keys and files is so."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_list import COMMANDS, GROUPS
from surely import sureline

import sureline as sureline_package
from sureline.cli.main import run_command
from sureline.workflow.yaml_blocks import DEFAULT_KEYS, TASK_KEYS
from sureline.workflow.yaml_needs import NEEDS_KEYS
from sureline.workflow.yaml_reader import TOP_KEYS, read_yaml

TOP = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("examples/**/*.md")],
)
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*")


def _name(path: Path) -> str:
    return str(path.relative_to(TOP))


def _code(text: str) -> Iterator[str]:
    """Fenced and indented blocks, line by line, and the code inside sentences."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```\w*\n(.*?)^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in fenced:
        yield from block.splitlines()
    yield from (line for line in rest.splitlines() if line.startswith("    "))
    yield from re.findall(r"`([^`\n]+)`", rest)


def test_there_are_documents() -> None:
    assert len(DOCUMENTS) > 15
    assert {"run", "resume", "status", "explain", "report", "validate"} <= set(COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_commands_exist(document: Path) -> None:
    for line in _code(document.read_text()):
        for used in re.findall(r"(?:^|[$(;&] ?|then )sureline ([a-z-]+)", line.strip()):
            assert used in GROUPS or used.startswith("--"), f"{document}: {line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document}: {target}"


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """The options of every command, as its --help has them; '' is the command itself."""
    found = {}
    for command in ["", *COMMANDS, *GROUPS]:  # a group may be a command, too
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run_command([*command.split(), "--help"]) == 0
        listed = out.getvalue()[out.getvalue().index("╭") :]
        found[command] = set(FLAG.findall(listed)) | {"--help"}
    return found


def _sections() -> Iterator[tuple[str, str]]:
    """(command, text) of the reference; '' for what is said of all."""
    text = (TOP / "docs/cli.md").read_text()
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        heading = re.match(r"sureline ([a-z]+(?: [a-z]+)?)", part)
        yield (heading[1] if heading else ""), part


def test_documented_options_exist(options: dict[str, set[str]]) -> None:
    known = set().union(*options.values())
    for command, text in _sections():
        for flag in FLAG.findall(" ".join(re.findall(r"`([^`\n]+)`", text))):
            assert flag in known or re.fullmatch("-[0-9]", flag), f"no command has {flag}"
            assert not command or flag in options[command] | {"-e"} or flag in ALSO_NAMED, (
                f"{command} has no {flag}"
            )


ALSO_NAMED = {"--fresh", "--stop-on-failure", "--retry-delay"}
"""Options of `run` that the section on `resume` speaks of."""


def test_every_option_is_documented(options: dict[str, set[str]]) -> None:
    sections = dict(_sections())
    everywhere = {"--help", "--json", "--directory", "-C", "--version", "-h"}
    assert set(COMMANDS) <= set(sections)
    for command in COMMANDS:
        for flag in options[command] - everywhere:
            assert flag in FLAG.findall(sections[command]), f"{command}: {flag} is not documented"


@pytest.mark.parametrize("key", [*TOP_KEYS, *TASK_KEYS, *DEFAULT_KEYS, *NEEDS_KEYS])
def test_every_key_of_the_workflow_file_is_documented(key: str) -> None:
    assert f"`{key}`" in (TOP / "docs/workflow-file.md").read_text()


def test_the_reference_workflow_is_valid(tmp_path: Path) -> None:
    text = (TOP / "docs/workflow-file.md").read_text()
    flow = re.findall(r"^```yaml\n(name: .*?)^```", text, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "big.txt").touch()
    assert len(read_yaml(flow, file="flow.yaml", directory=tmp_path).graph) == 6


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


FLOW = """\
tasks:
  good: {run: echo hello > hello.txt, outputs: hello.txt}
  bad: {run: exit 3}
"""


def test_every_json_key_is_documented(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "wrong.yaml").write_text("task: {}")
    codes = {}
    documented = set(re.findall(r"[a-z0-9_]+", (TOP / "docs/json.md").read_text()))
    for line in (
        "init new",
        "validate flow.yaml",
        "validate wrong.yaml",
        "run flow.yaml",
        "resume",
        "runs",
        "show --tasks",
        "show last good",
        "logs last good",
        "status",
        "explain good",
        "explain bad",
        "graph last",
        "report",
        "cancel",
    ):
        said = sureline(tmp_path, *line.split(), "--json")
        codes[line] = said.code
        assert set(_keys(said.json)) <= documented, line
    assert codes["validate wrong.yaml"] == 2
    assert codes["run flow.yaml"] == codes["resume"] == 1
    assert set(codes.values()) == {0, 1, 2}


def test_the_first_python_example_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (TOP / "README.md").read_text(), re.M | re.S)
    (tmp_path / "areas.py").write_text(blocks[0])
    ran = subprocess.run(
        [sys.executable, "areas.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(ran.stdout) == pytest.approx(3.14159 * 285)


def test_the_python_reference_names_what_there_is() -> None:
    text = (TOP / "docs/python.md").read_text()
    imported = re.findall(r"^from sureline import (.+)$", text, re.MULTILINE)[0].split(", ")
    assert imported == sureline_package.__all__
    for method in re.findall(r"^\*\*`flow\.(\w+)\(", text, re.MULTILINE):
        assert callable(getattr(sureline_package.Workflow, method))
