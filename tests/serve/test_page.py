"""The page in a real browser, on a desk and on a phone. Screenshots go to the folder LITEBERT_SCREENSHOTS names."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from litebert.serve.app import PAGE
from litebert.tasks.targets import in_digits
from tests.serve.conftest import process, until

FOLDER = Path(__file__).parents[2] / "src/litebert/serve/page"


def test_the_page_loads_nothing_from_elsewhere():
    assert {name for name, _ in PAGE.values()} == {path.name for path in FOLDER.iterdir()}
    for path in FOLDER.iterdir():
        links = re.findall(r"https?://[^\s\"']+", path.read_text())
        assert set(links) <= {"http://www.w3.org/2000/svg"}, path  # the name of a language, fetched by nobody
        assert not re.search(r"innerHTML|outerHTML|document\.write|eval\(", path.read_text()), path


def test_every_file_of_the_page_is_served_with_a_policy(here):
    server = here()
    for path, (name, kind) in PAGE.items():
        found = server.get(path)
        assert found.content == (FOLDER / name).read_bytes()
        assert found.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in found.headers["content-security-policy"]


def test_numbers_are_shown_as_people_write_them():
    """A price in the millions to its last digit, as everywhere else; asked of the page's own function."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here; the page's numbers were not tried")
    numbers = [3152437.25, 152437.25, 2.5, -1700000123.0, 1 / 3, 0.0]
    code = f"{(FOLDER / 'draw.js').read_text()}\nconsole.log(JSON.stringify({json.dumps(numbers)}.map(digits)))"
    shown = json.loads(subprocess.run([node, "-e", code], check=True, capture_output=True, text=True).stdout)
    assert shown == [in_digits(number) for number in numbers]
    assert "digits(told.value)" in (FOLDER / "page.js").read_text()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'litebert[browser]'")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here; the page was not tried in a browser")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(folders):
    with process(*folders.values()) as (_, where):
        yield where


@pytest.fixture(params=["desk", "phone"])
def page(request, browser, address):
    size = {"desk": {"width": 1100, "height": 800}, "phone": {"width": 360, "height": 740}}[request.param]
    opened = browser.new_page(viewport=size)
    problems = []
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.goto(address)
    opened.wait_for_selector("ol.bars li")
    yield opened
    wide = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if folder := os.environ.get("LITEBERT_SCREENSHOTS"):
        name = request.node.name.split("[")[0].removeprefix("test_")
        opened.screenshot(path=f"{folder}/{name}-{request.param}.png", full_page=True)
    opened.close()
    assert wide <= 0, "the page is wider than the screen"
    assert [each for each in problems if "status of 422" not in each] == []  # the browser's own note on an error


def turn_to(page, model, ask):
    page.select_option("#model", model)
    page.click(f"nav button[data-ask={ask}]")


def wait(page, true):
    """Playwright's own way of waiting is an `eval`, which the page's policy forbids."""
    until(lambda: page.evaluate(true))


def go(page):
    page.keyboard.press("Control+Enter")
    wait(page, "document.getElementById('time').textContent.includes('ms in the model')")


def rows(page):
    return [
        (each.query_selector(".name").inner_text(), float(each.query_selector(".share").inner_text().rstrip(" %")))
        for each in page.query_selector_all("ol.bars li")
    ]


def test_fillers_are_ranked_with_bars(page, models):
    page.fill("#fill-text", "the [MASK] was fine .")
    go(page)
    wanted = models["filler"].fill("the [MASK] was fine .", 10)[0]
    assert rows(page) == [(guess.text, pytest.approx(100 * guess.probability, abs=0.06)) for guess in wanted]
    widths = [each.bounding_box()["width"] for each in page.query_selector_all("ol.bars .fill")]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[-1]


def test_the_answers_span_is_marked_in_the_passage(page, models):
    turn_to(page, "answer", "answer")
    passage = "😀 the book was by ann and by bob , and the film by eve ."
    page.fill("#answer-question", "who wrote it ?")
    page.fill("#answer-passage", passage)
    go(page)
    told = models["answer"].answer("who wrote it ?", passage)
    assert page.inner_text("mark") == told.value
    assert page.inner_text(".passage") == passage
    before = page.evaluate("document.querySelector('mark').previousSibling.textContent")
    assert before == passage[: told.start]
    assert page.inner_text("#answer-said").startswith(f"{told.value}, {100 * told.probability:.1f} %")


def test_class_probabilities_are_shown(page, models):
    turn_to(page, "classify", "classify")
    page.fill("#classify-text", "the film was fine .")
    go(page)
    (told,) = models["classify"].classify(["the film was fine ."])
    assert dict(rows(page)) == {
        name: pytest.approx(100 * share, abs=0.06) for name, share in told.probabilities.items()
    }
    alone = rows(page)
    page.fill("#classify-pair", "a book")
    page.keyboard.press("Enter")
    until(lambda: rows(page) != alone)
    (pair,) = models["classify"].classify([("the film was fine .", "a book")])
    assert dict(rows(page))["good"] == pytest.approx(100 * pair.probabilities["good"], abs=0.06)


def test_tags_and_choices_are_shown(page, models):
    turn_to(page, "tag", "tag")
    page.fill("#tag-text", "ann went to rome")
    go(page)
    told = models["tag"].tag(["ann went to rome"])[0].value
    assert [each.inner_text() for each in page.query_selector_all(".chip small")] == list(told)
    turn_to(page, "choice", "choose")
    page.fill("#choose-options", "ann\nthe film\nin rome")
    go(page)
    assert {name for name, _ in rows(page)} == {"ann", "the film", "in rome"}
    assert sum(share for _, share in rows(page)) == pytest.approx(100, abs=0.2)


def test_pieces_and_vectors_are_shown(page):
    turn_to(page, "filler", "pieces")
    page.fill("#pieces-text", "The films")
    go(page)
    assert [each.inner_text().split("\n")[0] for each in page.query_selector_all(".chip")] == [
        "[CLS]",
        "the",
        "film",
        "##s",
        "[SEP]",
    ]
    turn_to(page, "filler", "embed")
    page.fill("#embed-texts", "the film\na book\nin rome")
    go(page)
    assert len(page.query_selector_all("svg .cell")) == 9
    assert page.query_selector("svg .cell title").text_content().endswith("1.000")


def test_attention_and_layers_are_drawn(page, models):
    turn_to(page, "filler", "look")
    page.fill("#look-text", "the film was fine")
    go(page)
    pieces, layers = 6, 5
    assert len(page.query_selector_all("svg .cell")) == pieces**2 + layers**2
    before = page.inner_html("svg")
    page.focus("#look-layer")
    page.keyboard.press("ArrowLeft")
    wait(page, "document.querySelector('h2').textContent.includes('layer 3')")
    assert page.inner_html("svg") != before
    page.select_option("#look-head", "2")
    wait(page, "document.querySelector('h2').textContent.includes('head 2')")
    page.fill("#look-text", "the film was fine and the book " * 20)  # more than can be drawn, and wider than a phone
    go(page)
    assert len(page.query_selector_all("svg .cell")) == 64**2 + layers**2


def test_the_dial_shows_time_and_change_as_it_moves(page, models):
    turn_to(page, "classify", "classify")
    page.fill("#classify-text", "the film was fine .")
    go(page)
    page.wait_for_selector("#dial-change")
    assert "4 of 4 passes" in page.inner_text("#dial-change")
    assert "0.0 % of the probability" in page.inner_text("#dial-change")
    page.focus("#dial")
    for passes in (3, 2, 1):
        page.keyboard.press("ArrowLeft")
        wait(page, f"document.getElementById('dial-change')?.textContent.startsWith('{passes} of 4 passes')")
    full, shallow = (models["classify"].classify(["the film was fine ."], passes=n)[0] for n in (4, 1))
    moved = sum(abs(full.probabilities[name] - shallow.probabilities[name]) for name in ("bad", "good")) / 2
    assert f"{100 * moved:.1f} % of the probability" in page.inner_text("#dial-change")
    assert re.search(r"[\d.]+ ms", page.inner_text("#dial-change"))
    assert dict(rows(page))["good"] == pytest.approx(100 * shallow.probabilities["good"], abs=0.06)
    assert len(page.query_selector_all("#dial-history circle")) == 4


def test_keys_are_enough(page):
    page.keyboard.press("Alt+3")
    assert page.get_attribute("nav button[data-ask=pieces]", "aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "pieces-text"
    page.focus("nav button[aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("nav button[data-ask=look]", "aria-selected") == "true"


def test_an_error_is_told_and_texts_stay_texts(page):
    page.fill("#fill-text", "no mask")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#error:not([hidden])")
    assert "nothing to fill" in page.inner_text("#error")
    turn_to(page, "answer", "answer")
    page.fill("#answer-passage", "<img src=x onerror=alert(1)> <b>ann</b>")
    go(page)
    assert page.inner_text(".passage") == "<img src=x onerror=alert(1)> <b>ann</b>"


def test_the_page_asks_for_the_key(browser, folders):
    with process(folders["filler"], variables={"LITEBERT_API_KEY": "a secret"}) as (_, where):
        page = browser.new_page()
        page.goto(where)
        page.wait_for_selector("#key")
        page.fill("#key", "a secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("ol.bars li")
        page.close()
