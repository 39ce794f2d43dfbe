"""The live page in a real browser, as a file and at an address: it follows the metrics, and loads what it shows."""

import json
import re
from contextlib import contextmanager

import pytest

from browsing import SIZES, launched, needs_browser, opened
from tpkd.watch.to_file import PageFile
from tpkd.watch.watch import Watch
from watch.runs import metrics, note, write_grid, write_run
from watch.test_server import serving

pytestmark = needs_browser

EVERY = 0.2
HOSTILE = "<img src=x onerror=console.log(1)>&'\"-42"


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@contextmanager
def shown(browser, directory, page_path, size="desktop", **options):
    """The page of a directory as a file, with a function that writes what is new."""
    watch = Watch(directory)
    file = PageFile(page_path, watch)
    file.update(every=EVERY)

    def update():
        watch.refresh()
        file.update(every=EVERY)

    with opened(browser, page_path.as_uri(), size, folder=page_path.parent.as_uri(), **options) as page:
        yield page, update
        assert page.problems == []


def append(directory, steps):
    with (directory / "metrics.jsonl").open("a") as file:
        file.write(metrics(steps))


def newest(page, name):
    return page.locator(f'data[data-name="{name}"]').first.get_attribute("value")


def wait_for(page, name, value):
    same = "(d) => d.dataset.name === name && Number(d.value) === value"
    found = f"([name, value]) => [...document.querySelectorAll('data')].some({same})"
    page.wait_for_function(found, arg=[name, value])


def test_a_file_follows_a_run(browser, tmp_path):
    run = write_run(tmp_path / "run")
    with shown(browser, run, tmp_path / "live.html") as (page, update):
        wait_for(page, "loss", 1 / 5)
        assert page.locator("figure").count() == 5  # it has no validation part
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines[-3:]:
            for name in ("loss", "accuracy", "blocked_share", "conditional_loss", "transfer_cost"):
                if name in line:
                    assert float(newest(page, name)) == line[name]
        append(run, [6, 7])
        update()
        wait_for(page, "loss", 1 / 7)
        assert not page.locator("#cells").is_visible()


def test_an_address_follows_a_grid(browser, tmp_path):
    write_grid(tmp_path)
    with serving(tmp_path, every=EVERY) as server, opened(browser, server.address, "desktop") as page:
        wait_for(page, "tpkd-42/loss", 1 / 5)
        append(tmp_path / "tpkd-42", [6])
        wait_for(page, "tpkd-42/loss", 1 / 6)
        write_run(tmp_path / "ce-42")
        wait_for(page, "ce-42/loss", 1 / 5)
        assert page.problems == []


def test_cells_together_and_side_by_side(browser, tmp_path):
    grid = write_grid(tmp_path / "grid", names=("tpkd-42", "tpkd-43", "kd-42"))
    with shown(browser, grid, tmp_path / "live.html") as (page, _):
        page.locator("figure").first.wait_for()
        legend = page.locator("#pictures > .legend li")
        page.wait_for_function("() => document.querySelectorAll('#pictures > .legend li').length === 2")
        assert sorted(legend.all_inner_texts()) == ["kd-42", "tpkd-42"]  # one of each objective
        assert page.locator("figure").first.locator(".line").count() == 2
        page.get_by_role("checkbox", name="tpkd-43").check()
        page.wait_for_function("() => document.querySelectorAll('#pictures > .legend li').length === 3")
        page.get_by_role("button", name="Side by side").click()
        assert page.locator("#pictures section").count() == 3
        assert "view=apart" in page.url
        assert "tpkd-43" in page.url
        address = page.url
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_function("() => document.querySelectorAll('#pictures section').length === 3")


def test_many_cells_load_only_the_curves_that_are_drawn(browser, tmp_path):
    grid = write_grid(tmp_path / "grid", names=[f"objective{number}-42" for number in range(300)])
    watch = Watch(grid)
    PageFile(tmp_path / "live.html", watch).update(every=None)
    loaded = []
    with opened(browser, (tmp_path / "live.html").as_uri(), "desktop", folder=tmp_path.as_uri()) as page:
        page.on("request", lambda request: loaded.append(request.url))
        page.reload()
        page.wait_for_function("() => document.querySelectorAll('#pictures > .legend li').length === 6")
        curves = {found[0] for url in loaded if (found := re.search(r"curves-\d+", url))}
        assert len(curves) == 6
        assert page.locator("#cells tbody tr").count() == 200
        page.get_by_label("Find a cell").fill("objective299")
        assert page.locator("#cells tbody tr").count() == 1
        page.get_by_role("checkbox", name="objective299-42").check()
        page.wait_for_function("() => document.querySelectorAll('#pictures > .legend li').length === 7")
        assert page.problems == []


def test_hostile_names_and_problems_stay_texts(browser, tmp_path):
    grid = write_grid(tmp_path / "grid", names=(HOSTILE, "kd-42"))
    note(grid, "failed", "kd-42", problem=f"lost: {HOSTILE}")
    with shown(browser, grid, tmp_path / "a page.html") as (page, _):
        page.locator("figure").first.wait_for()
        assert page.locator("img").count() == 0
        assert HOSTILE in page.locator("#cells tbody").inner_text()
        assert f"lost: {HOSTILE}" in page.locator("#cells .problem").inner_text()


def test_a_grid_that_has_written_nothing_yet(browser, tmp_path):
    note(tmp_path / "grid", "waiting", "tpkd-42")
    with shown(browser, tmp_path / "grid", tmp_path / "live.html") as (page, update):
        assert "No run has written anything yet" in page.locator("#pictures").inner_text()
        write_run(tmp_path / "grid" / "tpkd-42")
        update()
        page.locator("figure").first.wait_for()


def test_the_end_of_a_watch_is_said(browser, tmp_path):
    write_grid(tmp_path / "grid")
    PageFile(tmp_path / "live.html", Watch(tmp_path / "grid")).update(every=None)
    with opened(browser, (tmp_path / "live.html").as_uri(), "desktop", folder=tmp_path.as_uri()) as page:
        assert "the watch has ended" in page.locator(".state").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_everything_is_seen_and_nothing_overflows(browser, tmp_path, size, scheme):
    grid = write_grid(
        tmp_path / "grid", names=("tpkd-42", "a-very-long-name-of-an-objective-with-settings-beta-0.5-42")
    )
    with shown(browser, grid, tmp_path / "live.html", size, scheme=scheme) as (page, _):
        page.locator("figure").first.wait_for()
        width = page.viewport_size["width"]
        for view in ("Together", "Side by side"):
            page.get_by_role("button", name=view).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for figure in page.locator("figure").all():
                box = figure.bounding_box()
                assert 250 < box["width"] <= box["x"] + box["width"] <= width
        ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
