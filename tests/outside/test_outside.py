"""A strategy in a package of its own, that nothing of Sureline knows: installed by its entry point,
it runs in both worlds and passes the suite that ours pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "roomiest"
SOURCE = Path(__file__).parents[2] / "src"
LINES_MAX = 120
LONG = "test_live_cut_off_and_back_with_a_deadline"
"""Real time goes by in it: of our own strategies, too, a heavy proof."""
SUITE_S = 280.0
"""On a machine that is very busy; it takes a tenth of that."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory with the package as pip installs it, and the environment to find it by."""
    made = tmp_path_factory.mktemp("outside")
    shutil.copytree(PACKAGE, made / "source")  # building leaves traces
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(made / "site")]
    done = subprocess.run(
        [*pip, *alone, str(made / "source")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return made, {**os.environ, "PYTHONPATH": str(made / "site")}


@pytest.mark.limit_s(SUITE_S + 20)
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param("not " + LONG, id="quick"),
        pytest.param(LONG, marks=pytest.mark.soak, id="long"),
    ],
)
def test_it_passes_the_suite(installed, chosen):
    where, env = installed
    suite = shutil.copy(PACKAGE / "conformance_of_roomiest.py", where)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-k", chosen, suite),
        ],
        cwd=where,
        env=env,
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


def test_it_is_chosen_and_set_by_name(installed):
    _, env = installed
    program = (
        "from sureline.run.options import Options\n"
        "from sureline.strategies import known, resolved, settings_of, strategy\n"
        "assert resolved(Options(grid='lab', strategy='roomiest')).strategy == 'roomiest'\n"
        "print(settings_of(known()['roomiest'], {'spare_cores': '1.5'}).spare_cores)\n"
        "settings_of(strategy('roomiest'), {'spare_core': 1})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "1.5\n", done.stderr
    assert "roomiest has no setting 'spare_core' (did you mean spare_cores?)" in done.stderr


def test_it_is_small_and_nothing_of_ours_knows_it():
    assert len((PACKAGE / "roomiest.py").read_text().splitlines()) <= LINES_MAX
    knowing = [p for p in SOURCE.rglob("*.py") if "roomiest" in p.read_text()]
    assert not knowing
    imports = [
        line
        for line in (PACKAGE / "roomiest.py").read_text().splitlines()
        if line.startswith(("import", "from")) and "sureline" in line
    ]
    assert imports == ["from sureline.run.port import ("]
