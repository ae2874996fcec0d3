"""The report in a real browser, opened from a file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from surely import sureline
from web_browser import needs_chromium, visit
from web_histories import graph_of, record_of, worked

from sureline.web.report import report

pytestmark = needs_chromium

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
FLOW = f"""
name: survey
tasks:
  prepare:
    run: echo hello > a.txt; echo "{EVIL}"
    outputs: [a.txt]
  work:
    for: {{i: [good, bad, "{EVIL}"]}}
    run: 'case "{{{{i}}}}" in bad) echo "no <b>space</b> left" >&2; exit 3;; esac; cat a.txt'
    inputs: [a.txt]
    retries: 1
  after:
    run: cat a.txt > b.txt
    inputs: [a.txt]
    outputs: [b.txt]
    after: ["work"]
"""


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a real run with a failure, a retry, and names that are markup."""
    where = tmp_path_factory.mktemp("survey")
    (where / "flow.yaml").write_text(FLOW)
    ran = sureline(where, "run", "flow.yaml", "--retry-delay", "10ms", "--json")
    assert ran.json["tasks"]["failed"] == 1, ran.err
    made = sureline(where, "report", "--output", "survey.html", "--json")
    assert made.code == 0, made.err
    return where / "survey.html"


def test_it_opens_without_a_complaint_and_no_markup_of_the_users_runs(survey: Path) -> None:
    seen = visit(
        survey,
        "tell({scripts: $$('script').length, images: $$('img').length, title: $('h1').textContent,"
        " rows: $$('#rows tr').length, names: $$('#rows tr .link').map((e) => e.textContent),"
        " bars: $$('.bar').length, failed: $$('.bar.failed').length,"
        " failures: $('#failures').textContent})",
    )
    assert seen.console == []
    assert seen.told["title"] == "survey"
    assert seen.told["images"] == 0
    assert seen.told["scripts"] == 3  # the data, the page's own, the probe
    assert f"work:{EVIL}" in seen.told["names"]
    assert seen.told["rows"] == 5
    assert seen.told["bars"] == 5  # prepare, good, evil, and two attempts at bad
    assert seen.told["failed"] == 2
    assert "exit code 3" in seen.told["failures"]
    assert "no <b>space</b> left" in seen.told["failures"]


@pytest.mark.parametrize(
    "press",
    [
        "$('.bar.failed').click()",
        "$$('g.box').find((e) => e.textContent.includes('work:bad'))"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        "$$('#rows tr').find((e) => e.textContent.includes('work:bad')).click()",
        "{ const box = $$('g.box').find((e) => e.textContent.includes('work:bad')); box.focus();"
        " box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})); }",
    ],
    ids=["timeline", "graph", "table", "keyboard"],
)
def test_a_press_on_a_task_shows_its_story(survey: Path, press: str) -> None:
    seen = visit(
        survey,
        f"const before = $('#story').hidden; {press};"
        " const open = {hidden: $('#story').hidden, title: $('#story-title').textContent,"
        " events: $$('#story .events li').map((e) => e.textContent), text: $('#story').innerText,"
        " hash: location.hash};"
        " const escape = new KeyboardEvent('keydown', {key: 'Escape', bubbles: true});"
        " document.body.dispatchEvent(escape);"
        " tell({before, open, after: $('#story').hidden})",
    )
    assert seen.console == []
    told = seen.told
    assert (told["before"], told["open"]["hidden"], told["after"]) == (True, False, True)
    assert told["open"]["title"] == "work:bad"
    assert told["open"]["hash"] == "#task=work%3Abad"
    words = " | ".join(told["open"]["events"])
    for part in ("ready", "attempt 1 starts", "attempt 1 fails", "tried again", "attempt 2 fails"):
        assert part in words
    assert "no <b>space</b> left" in told["open"]["text"]
    assert "prepare" in told["open"]["text"]


def test_an_address_opens_a_story(survey: Path) -> None:
    seen = visit(
        survey,
        "tell([$('#story').hidden, $('#story-title').textContent, $('#story .files').textContent])",
        fragment="#task=prepare",
    )
    assert seen.console == []
    assert seen.told[:2] == [False, "prepare"]
    assert "a.txt" in seen.told[2]


def test_filter_sort_and_colours(survey: Path) -> None:
    seen = visit(
        survey,
        "const type = (text) => { $('#filter').value = text;"
        " $('#filter').dispatchEvent(new Event('input')); };"
        " const names = () => $$('#rows tr').map((e) => e.querySelector('.link').textContent);"
        " type('GOOD'); const filtered = names(); type('nothing like it'); const none = names();"
        " type(''); $('table.tasks .sort').click(); const up = names();"
        " $('table.tasks .sort').click(); const down = names();"
        " $('#state-choice').value = 'failed';"
        " $('#state-choice').dispatchEvent(new Event('change')); const failed = names();"
        " const paper = () => getComputedStyle(document.body).backgroundColor;"
        " const light = paper(); $('#theme').click(); const dark = paper();"
        " tell({filtered, none, up, down, failed, light, dark})",
    )
    assert seen.console == []
    told = seen.told
    assert told["filtered"] == ["work:good"]
    assert told["none"] == []
    assert told["up"] == sorted(told["up"], key=str.lower)
    assert told["down"] == told["up"][::-1]
    assert told["failed"] == ["work:bad"]
    assert sum(_channels(told["light"])) > 600 > 200 > sum(_channels(told["dark"]))


def test_it_is_dark_where_the_reader_likes_it_dark(survey: Path) -> None:
    probe = "tell([getComputedStyle(document.body).backgroundColor, $('#theme').textContent])"
    ground, switch = visit(survey, probe, dark=True).told
    assert sum(_channels(ground)) < 200
    assert switch == "Light"


def _channels(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


def test_the_browser_would_tell_of_an_error(survey: Path) -> None:
    broken = survey.with_name("broken.html")
    broken.write_text("<body><script>nothing.here()</script>")
    assert any("nothing is not defined" in line for line in visit(broken).console)


def test_ten_thousand_tasks_stay_light(tmp_path: Path) -> None:
    parents: list[list[int]] = [
        [] if k < 2000 else [k - 2000, (k * 7) % 2000] for k in range(10_000)
    ]
    graph = graph_of(parents, kinds=6)
    events = worked(graph, slots=16, durations_s=(1.0, 2.0, 0.5), flaky=range(0, 10_000, 500))
    began = time.process_time()
    text = report(record_of(graph, events))
    assert time.process_time() - began < 20
    assert len(text.encode()) < 8_000_000
    page = tmp_path / "large.html"
    page.write_text(text)
    seen = visit(
        page,
        "const canvas = $('canvas'); const box = canvas.getBoundingClientRect();"
        " const painted = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        ".data.filter((value, k) => k % 4 === 3 && value).length;"
        " const elements = $$('*').length;"
        " canvas.dispatchEvent(new MouseEvent('click', {bubbles: true,"
        " clientX: box.left + box.width / 2, clientY: box.top + 10}));"
        " const story = $('#story').hidden ? '' : $('#story .events').textContent;"
        " $('#filter').value = ':9999'; $('#filter').dispatchEvent(new Event('input'));"
        " tell({painted, elements, story, rows: $$('#rows tr').length,"
        " found: $('#found').textContent})",
    )
    assert seen.console == []
    assert seen.told["painted"] > 10_000
    assert seen.told["elements"] < 4_000
    assert "starts on here" in seen.told["story"]
    assert seen.told["rows"] == 1
    assert seen.told["found"].replace("\u202f", "") == "1 of 10000 tasks"
