"""The gallery in a real browser: filters, order, links and keys, and numbers that are the record's."""

import json

import numpy as np
import pytest
import torch

import tpkd
from audit.cases import HOSTILE, make_case
from browsing import SIZES, launched, needs_browser, opened, until
from tpkd.report import numbers

pytestmark = needs_browser

ROWS = 400


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return make_case(tmp_path_factory.mktemp("audit"), rows=ROWS)


@pytest.fixture(scope="module")
def record(case):
    return case.audit(kind="image")


@pytest.fixture(scope="module")
def state(case):
    """Of the last student, which the page shows first."""
    return tpkd.diagnose(*map(torch.from_numpy, (case.students[-1], case.teacher, case.labels)))


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture
def visit(browser, case, record):
    contexts = []

    def open_at(hash_="", size="desktop", scheme="light", folder=case.folder / "audit"):
        address = f"{(folder / 'index.html').as_uri()}{hash_}"
        context = opened(browser, address, size, scheme=scheme, folder=folder.as_uri())
        contexts.append(context)
        page = context.__enter__()
        until(page, "document.getElementById('count').textContent")
        return page

    yield open_at
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def shown(page):
    """Rows of the cards that exist, in order."""
    return page.evaluate("[...document.querySelectorAll('.example')].map(card => Number(card.dataset.at))")


def until_counted(page, number):
    """Wait for the line above the gallery to say how many examples there are."""
    until(page, f"document.getElementById('count').textContent.startsWith('{number} ')")


def count(page):
    return int(page.locator("#count").inner_text().split()[0].replace(",", ""))


def opened_example(page, at):
    page.wait_for_selector(f"#example[open][data-at='{at}']")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_error_no_request_and_nothing_overflows(visit, size, scheme):
    page = visit("#id=1007", size, scheme)
    opened_example(page, 7)
    page.locator("details summary").last.click()
    page.evaluate("document.getElementById('example').scrollTo(0, 1e5)")
    page.keyboard.press("Escape")
    page.mouse.wheel(0, 20_000)
    page.goto(f"{page.url.split('#')[0]}#view=flips")
    page.locator("#flips table.sortable").wait_for()
    assert page.problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


def test_the_first_view_is_the_costliest_first(visit, state):
    page = visit()
    order = np.argsort(-state.transfer_cost.numpy(), kind="stable")
    assert shown(page) == order[: len(shown(page))].tolist()
    assert count(page) == ROWS


@pytest.mark.parametrize(
    ("sort", "name", "sign"),
    [("loss", "conditional_loss", -1), ("disagreement", "imitation_loss", -1), ("confidence", "confidence", 1)],
)
def test_examples_are_sorted_both_ways(visit, state, sort, name, sign):
    page = visit()
    values = getattr(state, name).numpy()
    page.locator("#gallery select[data-state=sort]").select_option(sort)
    for direction in (sign, -sign):
        order = np.argsort(direction * values, kind="stable")
        until(page, f"Number(document.querySelector('.example').dataset.at) === {order[0]}")
        assert shown(page) == order[: len(shown(page))].tolist()
        page.locator("#order").click()


def test_margins_sort_by_the_smallest_lead(visit, case):
    logits, rows = case.students[-1], np.arange(ROWS)
    others = np.where(np.eye(5)[case.labels] == 1, -np.inf, logits).max(-1)
    order = np.argsort(logits[rows, case.labels] - others, kind="stable")
    page = visit("#sort=margin&order=up")
    assert shown(page)[:10] == order[:10].tolist()


FILTERS = {
    "blocked=yes": lambda right, taught, same, blocked: blocked,
    "blocked=no": lambda right, taught, same, blocked: ~blocked,
    "answers=teacher-only": lambda right, taught, same, blocked: taught & ~right,
    "answers=student-only": lambda right, taught, same, blocked: right & ~taught,
    "answers=both-wrong": lambda right, taught, same, blocked: ~right & ~taught,
    "answers=different": lambda right, taught, same, blocked: ~same,
    "answers=wrong&blocked=no": lambda right, taught, same, blocked: ~right & ~blocked,
}


@pytest.mark.parametrize("chosen", FILTERS)
def test_filters_choose_the_right_examples(visit, case, state, chosen):
    answer, taught = case.students[-1].argmax(-1), case.teacher.argmax(-1)
    fits = FILTERS[chosen](answer == case.labels, taught == case.labels, answer == taught, state.blocked.numpy())
    page = visit(f"#{chosen}&sort=row&order=up")
    assert count(page) == fits.sum() > 0
    assert shown(page) == np.flatnonzero(fits)[: len(shown(page))].tolist()


def test_controls_filter_and_reset(visit, case):
    page = visit()
    page.locator("#gallery select[data-state=label]").select_option("2")
    until(page, f"!document.getElementById('count').textContent.startsWith('{ROWS} ')")
    assert count(page) == (case.labels == 2).sum()
    page.locator("#gallery select[data-state=answer]").select_option("3")
    expected = ((case.labels == 2) & (case.students[-1].argmax(-1) == 3)).sum()
    until_counted(page, expected)
    assert "label=2" in page.url
    page.locator("#reset").click()
    until_counted(page, ROWS)


def test_tiles_lead_to_their_examples(visit, record):
    page = visit()
    page.locator("#tiles a").nth(2).click()
    until_counted(page, record.students[-1].teacher_only)


@pytest.mark.parametrize("view", ["", "#view=flips"])
def test_numbers_over_all_examples_are_those_of_the_record(visit, record, view):
    page = visit(view)
    selector = "#flips data[data-path]" if view else "#tiles data[data-path]"
    page.locator(selector).first.wait_for()
    found = page.evaluate(f"[...document.querySelectorAll('{selector}')].map(d => [d.dataset.path, d.value])")
    assert len(found) >= (40 if view else 8)
    for path, value in found:
        expected = record.to_dict()
        for key in path.split("."):
            expected = expected[int(key)] if isinstance(expected, list) else expected[key]
        assert float(value) == expected, path


def test_numbers_of_an_example_are_those_of_the_theory(visit, case, state):
    page = visit("#id=1011")
    opened_example(page, 11)
    found = dict(
        page.evaluate("[...document.querySelectorAll('.facts-list data')].map(d => [d.dataset.path, d.value])")
    )
    assert len(found) == 9
    for name, value in found.items():
        if not name.endswith("margin"):
            assert float(value) == getattr(state, name)[11].item(), name
    price = page.locator(".facts-list data[data-path=transfer_cost]").inner_text()
    assert price == numbers.nats(state.transfer_cost[11].item())
    probabilities = np.exp(torch.from_numpy(case.students[-1][11]).log_softmax(-1).numpy())
    script = "[...document.querySelectorAll('details tbody tr')].map(r => [r.cells[0].textContent, r.cells[1]"
    cells = page.evaluate(f"{script}.querySelector('data').value])")
    assert len(cells) == 5
    for name, value in cells:
        assert float(value) == pytest.approx(probabilities[case.class_names.index(name)], rel=1e-12)


def test_a_link_opens_its_example_and_another_student(visit, case):
    page = visit("#student=0&id=1042")
    opened_example(page, 42)
    assert page.locator("#example-title").inner_text().startswith(case.class_names[case.labels[42]])
    assert page.locator(".answers tr.strong th").inner_text() == "student-0"
    assert page.locator("#permalink").get_attribute("href") == "#student=0&id=1042"


def test_every_network_has_its_margin_beside_its_answer(visit, case):
    page = visit("#id=1011")
    opened_example(page, 11)
    label, found = case.labels[11], page.locator(".answers tbody data").all()
    assert len(found) == 1 + len(case.students)
    for cell, logits in zip(found, (case.teacher[11], *(student[11] for student in case.students)), strict=True):
        margin = logits[label] - np.delete(logits, label).max()
        assert float(cell.get_attribute("value")) == pytest.approx(margin, rel=1e-5, abs=1e-6)


def test_an_unknown_name_is_said(visit):
    page = visit("#id=%3Cb%3E")
    page.locator("#problem").wait_for()
    assert page.locator("#problem").inner_text() == 'No example is called "<b>".'


def test_going_to_an_example_by_name(visit):
    page = visit()
    page.keyboard.press("/")
    page.keyboard.type("1003")
    page.keyboard.press("Enter")
    opened_example(page, 3)


def test_keys_walk_through_the_gallery_and_the_examples(visit, state):
    order = np.argsort(-state.transfer_cost.numpy(), kind="stable").tolist()
    page = visit()
    page.locator(".example").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    opened_example(page, order[1])
    page.keyboard.press("ArrowRight")
    opened_example(page, order[2])
    page.keyboard.press("k")
    page.keyboard.press("k")
    opened_example(page, order[0])
    assert page.locator("#previous").is_disabled()
    page.keyboard.press("Escape")
    until(page, "!document.getElementById('example').open")
    # The page hears of it in a later task, and until then the card that was opened first has the focus.
    until(page, f"Number(document.activeElement.dataset.at) === {order[0]}")
    assert "id=" not in page.url
    page.keyboard.press("End")
    until(page, f"Number(document.activeElement.dataset.at) === {order[-1]}")
    assert page.problems == []


def test_the_focus_is_seen(visit):
    page = visit()
    page.keyboard.press("Tab")
    for _ in range(20):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style != "none"


def test_everything_has_a_name_for_screen_readers(visit):
    page = visit("#id=1011")
    opened_example(page, 11)
    unnamed = page.evaluate(
        """[...document.querySelectorAll('button, select, input, a')].filter(e =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim()))
        .map(e => e.outerHTML)"""
    )
    assert unnamed == []
    charts = page.locator("#example svg.chart").all()
    assert len(charts) == 2
    for chart in charts:
        identifiers = chart.get_attribute("aria-labelledby").split()
        assert all(page.locator(f"#{identifier}").text_content() for identifier in identifiers)


def test_flips_lead_to_their_examples(visit, case, record):
    page = visit("#view=flips")
    was, right = (logits.argmax(-1) == case.labels for logits in case.students)
    page.locator("#flips td.lost a").click()
    until_counted(page, (was & ~right).sum())
    assert set(shown(page)) <= set(np.flatnonzero(was & ~right).tolist())
    page.go_back()
    row = page.locator("#flips table.sortable tbody tr").first
    name = row.locator("th").inner_text()
    row.locator("td").nth(3).locator("a").click()
    won = ~was & right & (case.labels == case.class_names.index(name))
    until_counted(page, won.sum())
    assert set(shown(page)) <= set(np.flatnonzero(won).tolist())
    assert page.problems == []


def test_classes_of_flips_sort(visit):
    page = visit("#view=flips")
    table = page.locator("#flips table.sortable")
    header = table.locator("thead th").nth(6)
    for direction in ("descending", "ascending"):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == direction
        nets = [
            float(value) for value in table.evaluate("t => [...t.tBodies[0].rows].map(r => r.cells[6].dataset.sort)")
        ]
        assert nets == sorted(nets, reverse=direction == "descending")


def test_hostile_names_texts_and_ids_stay_texts(visit, tmp_path):
    from tpkd.audit.run import audit_files
    from tpkd.audit.sources import Sources
    from tpkd.data.dataset import Dataset

    names = (HOSTILE, "\ud800half", "x" * 5000, "\u202eright to left", "__proto__")
    case = make_case(tmp_path, rows=80, class_names=names)
    texts = (*(f"{HOSTILE}{row}" for row in range(79)), "long " * 100_000)
    ids = [f"{HOSTILE}{row}" for row in range(80)]
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    data = Dataset(HOSTILE, "test", "text", texts, case.labels, np.arange(80), names)
    files = case.sources(None)
    audit_files(
        Sources(files.students, files.teacher, files.labels, data, names, tmp_path / "ids.json"), tmp_path / "audit"
    )
    page = visit(folder=tmp_path / "audit")
    until(page, "document.querySelector('.excerpt').textContent")
    page.locator(".example").first.click()
    page.wait_for_selector("#example[open]")
    assert page.locator("#example .whole-text").inner_text().startswith("</script><img src=x")
    page.keyboard.press("ArrowRight")
    page.goto(f"{page.url.split('#')[0]}#view=flips")
    page.locator("#flips table.sortable").wait_for()
    assert page.locator("img").count() == 0
    assert page.problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_damaged_images_leave_a_gap(visit, tmp_path):
    from PIL import Image

    from tpkd.audit.run import audit_files
    from tpkd.audit.sources import Sources
    from tpkd.data import load_dataset

    case = make_case(tmp_path, rows=9)
    for row, label in enumerate(np.sort(case.labels)):
        place = tmp_path / "images" / "train" / case.class_names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "red").save(place / f"{row}.png")
    broken = sorted((tmp_path / "images").rglob("*.png"))[0]
    broken.write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='console.log(1)'></svg>")
    data = load_dataset(f"folder:{tmp_path / 'images'}", "train")
    np.save(tmp_path / "labels.npy", data.labels)
    logits = [np.random.default_rng(number).normal(size=(9, data.num_classes)) for number in range(2)]
    for name, values in zip(("student-0", "teacher"), logits, strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    paths = (tmp_path / f"{name}.npy" for name in ("teacher", "labels"))
    record = audit_files(Sources((tmp_path / "student-0.npy",), *paths, data, data.class_names), tmp_path / "audit")
    assert record.notes == ("1 images could not be decoded; the gallery shows their names.",)
    page = visit(folder=tmp_path / "audit")
    until(page, "document.querySelectorAll('.example img').length === 8")
    assert page.locator(".no-picture").count() == 1
    assert page.problems == []


def test_only_what_is_seen_is_loaded(visit, record):
    """Chunks are counted: a first view loads those of its cards, an example its own, and a jump to the end few more."""
    page = visit("#sort=row&order=up")
    page.wait_for_selector(".example img")
    loaded = page.evaluate("({...tpkdAudit.loaded})")
    assert loaded["inputs"] <= -(-len(shown(page)) // record.chunk_rows) + 1
    assert (loaded["details"], loaded["index"]) == (0, 2)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    until(page, f"[...document.querySelectorAll('.example')].some(card => Number(card.dataset.at) === {ROWS - 1})")
    until(page, "document.querySelectorAll('.example img').length === document.querySelectorAll('.example').length")
    assert page.evaluate("tpkdAudit.loaded.inputs") < -(-ROWS // record.chunk_rows)
    assert len(shown(page)) < ROWS / 2
    assert page.evaluate("document.querySelectorAll('script[src]').length") == 1


def test_a_page_without_its_folder_says_so(browser, case, record, tmp_path):
    (tmp_path / "index.html").write_text((case.folder / "audit" / "index.html").read_text())
    with opened(browser, (tmp_path / "index.html").as_uri(), "desktop", folder=tmp_path.as_uri()) as page:
        page.locator("#problem").wait_for()
        assert "the page needs the folder data beside it" in page.locator("#problem").inner_text()
