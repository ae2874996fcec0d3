"""Make the pictures of docs/pictures from a real run: `python tools/pictures.py`.

Runs examples/mosaic in a temporary directory, writes its report and its graph with the `sureline`
command, and photographs them with Chromium (Debian: chromium, fonts-dejavu-core).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
SIZE_MAX = 300_000
PATIENCE_S = 300


def main() -> int:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name) / "mosaic"
        shutil.copytree(ROOT / "examples" / "mosaic", where)
        sureline(where, "run", "mosaic.yaml", "--fresh", "--quiet")
        sureline(where, "report", "--output", "report.html")
        sureline(where, "graph", "last", "--by-kind", "--output", "graph.svg")
        report, graph = where / "report.html", where / "graph.svg"
        photograph(browser, report, "report-light.png", (1280, 1500))
        photograph(browser, report, "report-dark.png", (1280, 1500), dark=True)
        photograph(browser, report, "story.png", (1280, 900), fragment="#task=seams")
        photograph(browser, graph, "graph.png", (1640, 250))
    return 0


def sureline(where: Path, *arguments: str) -> None:
    command = Path(sys.executable).with_name("sureline")
    subprocess.run([str(command), *arguments], cwd=where, check=True, timeout=PATIENCE_S)


def photograph(
    browser: str,
    page: Path,
    picture: str,
    size: tuple[int, int],
    *,
    dark: bool = False,
    fragment: str = "",
) -> None:
    """One picture of the top of a page, in a window of `size` pixels."""
    target = PICTURES / picture
    subprocess.run(
        [
            browser,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--hide-scrollbars", f"--window-size={size[0]},{size[1]}"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--screenshot={target}",
            page.as_uri() + fragment,
        ],
        check=True,
        timeout=PATIENCE_S,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    length = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {length / 1000:.0f} kB")
    if length > SIZE_MAX:
        raise SystemExit(
            f"{picture} is larger than {SIZE_MAX / 1000:.0f} kB; choose a smaller window"
        )


if __name__ == "__main__":
    sys.exit(main())
