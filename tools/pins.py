"""Resolve the pins anew: pyproject.toml to constraints.txt, with hashes and without addresses.

Uses pip-tools in an environment that is thrown away afterwards, so that it is no dependency of
ours. Versions that still suit are kept unless `--upgrade` is given.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
OPTIONS = [
    "--generate-hashes",
    "--allow-unsafe",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-header",
    "--no-annotate",
    "--strip-extras",
    "--extra=dev",
]


def main(arguments: list[str]) -> None:
    if not set(arguments) <= {"--upgrade"}:
        sys.exit("usage: python tools/pins.py [--upgrade]")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        _run(python, "-m", "pip", "install", "--quiet", "pip-tools")
        command = [python, "-m", "piptools", "compile", "--quiet", *OPTIONS, *arguments]
        _run(*command, "--output-file=constraints.txt", "pyproject.toml")
    text = (TOP / "constraints.txt").read_text()
    if "://" in text:
        sys.exit("constraints.txt has an address in it; remove it before you commit the file")
    print(f"constraints.txt pins {text.count('==')} packages")


def _run(*command: str) -> None:
    subprocess.run(command, cwd=TOP, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
