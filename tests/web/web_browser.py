"""A real browser for tests: Chromium opens a page, a probe acts on it, and what it saw comes back.

Nothing but the browser's own switches is needed. The probe is a script added to a copy of the
page (with leave given in the copy's content policy); it calls `tell(value)`, and the page as it
then stands is read with --dump-dom. Virtual time lets timers and frames pass without waiting.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 120.0
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


class Seen(NamedTuple):
    """What a page looked like in the end."""

    told: Any
    """The value that the probe told."""
    dom: str
    console: list[str]
    """Errors, exceptions and refusals that the browser logged."""


def visit(page: Path, probe: str = "", *, fragment: str = "", dark: bool = False) -> Seen:
    """Open a page, let the probe act, and look."""
    assert CHROMIUM is not None
    copy = page.with_name(f"{page.stem}.probed.html")
    copy.write_text(_with_probe(page.read_text(), probe) if probe else page.read_text())
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-dev-shm-usage", "--window-size=1400,1000", "--virtual-time-budget=5000"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={page.parent / 'profile'}",
            *("--enable-logging=stderr", "--v=0", "--dump-dom"),
            copy.as_uri() + fragment,
        ],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
        env={**os.environ, "TZ": "UTC"},
    )
    dom = done.stdout.decode(errors="replace")
    console = [
        line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line
    ]
    return Seen(_told(dom) if probe else None, dom, console)


def _with_probe(html: str, probe: str) -> str:
    script = (
        "const tell = (value) => { const box = document.createElement('output');"
        " box.id = 'told'; box.textContent = JSON.stringify(value); document.body.append(box); };"
        " const $ = (s) => document.querySelector(s);"
        " const $$ = (s) => [...document.querySelectorAll(s)];"
        f" window.addEventListener('load', () => {{ {probe} }});"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html = html.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return html.replace("</body>", f"<script>{script}</script></body>")


def _told(dom: str) -> Any:
    found = re.search(r'<output id="told">(.*?)</output>', dom, re.DOTALL)
    assert found, "the probe told nothing: it failed, or the page did"
    return json.loads(unescape(found[1]))
