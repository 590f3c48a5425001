"""The site: built strictly, notebooks run, pages looked at in a browser; nothing is loaded from outside."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import distcondense as dc
from tests.browser import Browser, chromium

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("index.html", "method.html", "repository/benchmarks/results/index.html")  # at every width, light and dark


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for all tests, as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT), "DISTCONDENSE_STATE": "off"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")]
    assert len(pages) > 15
    assert [page for page in pages if not (site / page.with_suffix(".html")).exists()] == []


def test_the_reference_has_every_public_name_and_the_page_shows_it(site: Path) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md"))
    shown = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html"))
    for name in dc.__all__:
        home = f"{getattr(dc, name).__module__}.{name}"
        assert f"::: {home}\n" in pages, name
        assert f'id="{home}"' in shown, name


def test_notebooks_are_rendered_with_their_figures(site: Path) -> None:
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / path.with_suffix(".html").name).read_text(encoding="utf-8")
        assert f'src="{path.stem}-0.png"' in page, path.name
        assert (site / "notebooks" / f"{path.stem}-0.png").stat().st_size > 5_000


def test_no_file_of_the_site_names_anything_to_load_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe|link|source|video)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = [tag for tag in loads.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in tag]
        assert found == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_equations_are_drawn_without_a_script(site: Path) -> None:
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") > 10
    assert "$$" not in page


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: pages are not opened in a browser")
    opened = Browser(program)
    yield opened
    opened.close()


def check_pages(browser: Browser, served: str, pages: Sequence[str], *, width: int, dark: bool) -> None:
    for page in pages:
        browser.open(f"{served}/{page}", width=width, dark=dark)
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), page
        assert browser.run("getComputedStyle(document.body).getPropertyValue('--md-default-bg-color') !== ''"), page
        scheme = browser.run("document.body.getAttribute('data-md-color-scheme')")
        assert scheme == ("slate" if dark else "default"), page
        assert browser.run("[...document.images].filter(one => one.complete && !one.naturalWidth).length") == 0, page
        assert [url for url in browser.requests() if not url.startswith(served)] == [], page
        assert browser.complaints() == [], page


LOOKS = [(width, dark) for width in (400, 1400) for dark in (False, True)]


def pages_of(site: Path) -> list[str]:
    """All pages but those of single results, which are made alike."""
    pages = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")) if path.name != "404.html")
    return [page for page in pages if page in ALWAYS or not page.startswith("repository/benchmarks/")]


@pytest.mark.parametrize("look", range(4), ids=[f"{width} {'dark' if dark else 'light'}" for width, dark in LOOKS])
def test_pages_fit_complain_of_nothing_and_load_nothing_from_outside(
    browser: Browser, served: str, site: Path, look: int
) -> None:
    """Some pages at every width, light and dark; each of the others at one of them."""
    others = [page for page in pages_of(site) if page not in ALWAYS]
    assert len(others) > 25
    width, dark = LOOKS[look]
    check_pages(browser, served, (*ALWAYS, *others[look::4]), width=width, dark=dark)


@pytest.mark.exhaustive
def test_every_page_fits_at_every_width_light_and_dark(browser: Browser, served: str, site: Path) -> None:
    for width, dark in LOOKS:
        check_pages(browser, served, pages_of(site), width=width, dark=dark)
