"""Make docs/pictures/progress.svg: the live display of a real run, as it stood half-way.

Runs a small workflow twice in a temporary directory (the first time, so that there is a history to
forecast from), keeps what the live display showed, and draws the moment with rich's recorder. The
picture refers to no outside address: it asks for a font by name and takes what is there.

    python tools/pictures_progress.py [PICTURE]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console, Group
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from sureline.cli.display import Display, Snapshot
from sureline.cli.display_live import BESIDE, frame, told_line
from sureline.cli.outlook import LiveOutlook
from sureline.cli.progress import ProgressWatcher
from sureline.compose import HOME, run_workflow
from sureline.peer.capacity import this_machine
from sureline.run.options import Options
from sureline.workflow.read import read_workflow

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "progress.svg"
WIDTH, ROWS = 104, 20
CORES = 6
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px;
  font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Album:
    """A face that keeps a picture of every snapshot that has a forecast."""

    def __init__(self, outlook: LiveOutlook) -> None:
        self._outlook = outlook
        self.pictures: list[tuple[Snapshot, list[Text]]] = []

    def show(self, snapshot: Snapshot) -> None:
        now = time.time()
        if snapshot.over or not self._outlook.words(now):
            return
        above = [told_line(told) for told in snapshot.told if told.kind not in BESIDE]
        lines = frame(snapshot, self._outlook, now, WIDTH - 1, ROWS)
        self.pictures.append((snapshot, above + lines))


def workflow() -> dict[str, object]:
    """A survey: images are calibrated, one of them is broken, and the rest become a mosaic."""
    tasks: dict[str, object] = {
        "flat": {"run": "sleep 0.4; echo flat > flat.fits", "outputs": ["flat.fits"]},
        "calibrate": {
            "for": {"i": "00..47"},
            "run": "sleep 1.{{i}}; echo {{i}} > cal/{{i}}.fits",
            "inputs": ["flat.fits"],
            "outputs": ["cal/{{i}}.fits"],
        },
        "check-headers": {
            "run": "sleep 0.3; echo 'raw/31.fits: no keyword EXPTIME' >&2; exit 2",
            "inputs": ["cal/04.fits"],
            "outputs": ["headers.txt"],
        },
        "catalogue": {
            "run": "sort headers.txt > catalogue.txt",
            "inputs": ["headers.txt"],
            "outputs": ["catalogue.txt"],
            "takes": "20s",
        },
        "mosaic": {
            "run": "sleep 1; cat cal/*.fits > mosaic.fits",
            "inputs": ["cal/*.fits"],
            "outputs": ["mosaic.fits"],
        },
    }
    return {"name": "survey", "tasks": tasks}


def photographed(where: Path) -> list[Text]:
    """The display of a second, fresh run, when a little more than half of it was done."""
    (where / "flow.yaml").write_text(json.dumps(workflow()))
    graph = read_workflow(where / "flow.yaml", directory=where).graph
    machine = this_machine(where, cores=CORES)
    run_workflow(graph, where, machine)
    following = LiveOutlook(where / HOME, machine)
    album = Album(following)
    display = Display(album)
    progress = ProgressWatcher(display, following)
    run_workflow(graph, where, machine, Options(fresh=True), progress)
    following.close()
    display.close(progress.snapshot())
    half = [(s, lines) for s, lines in album.pictures if s.done > 0.5 * s.total and s.failed]
    return max(half, key=lambda picture: picture[0].running)[1]


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as where:
        lines = photographed(Path(where))
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115 # until we end
    console.print(Group(Text("$ sureline run survey.yaml", end="\n"), *map(_whole, lines)))
    target.parent.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(
        title="sureline run", theme=SVG_EXPORT_THEME, code_format=TEMPLATE, unique_id="progress"
    )
    target.write_text(drawn)
    print(f"wrote {target}")


def _whole(line: Text) -> Text:
    line.end = "\n"
    return line


if __name__ == "__main__":
    main()
