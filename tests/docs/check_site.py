"""Check a built site: python tests/docs/check_site.py build/site [--browser] [--screenshots FOLDER]

Without options, only the files are checked: every link and anchor has a target inside the site, nothing is loaded from
a network, no formula and no markup is left as raw text, every picture has a description, and docs/fingers.html and
docs/one_page.html have the text of the pages of the site. With --browser the pages (of
those with a file of source every eighth) are opened in headless Chromium (needs the package playwright and Debian's
chromium), with the width of a desktop and of a phone: formulas are rendered, nothing is wider than the window, no code
scrolls, both themes work, and the search finds a name. On paper, no code is cut, all details are open, no menu covers
the text, the page of the one-page GPT takes two A4 pages, and GPT on one sheet takes one.
"""

import argparse
import contextlib
import functools
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).parents[2]
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 1000}
PAPER = {"width": 794, "height": 1123}  # A4
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]


RAW = re.compile(r"\$|\\[(\[]|\\(frac|sum|partial|mathrm)\b|:::|\{(ref|doc|math|download|code-cell)\}")

# Finds parts of an open page that are too wide. On a phone, parts with a shadow may scroll, but the page may not.
TOO_WIDE = """desktop => {
    const wide = [], page = document.documentElement, content = document.querySelector('.content');
    for (const box of [page, content])
        if (box && box.scrollWidth > box.clientWidth + 1)
            wide.push(`the page is ${box.scrollWidth - box.clientWidth} px wider than its window`);
    const scrolls = element => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
    for (const table of document.querySelectorAll('article table:not(.highlighttable)')) {
        let box = table.parentElement;
        while (box !== content && !scrolls(box)) box = box.parentElement;
        if (box === content && table.scrollWidth > table.parentElement.clientWidth + 1)
            wide.push(`a table is wider than the page: ${table.innerText.slice(0, 40)}`);
    }
    for (const code of document.querySelectorAll(desktop ? 'article pre' : 'article .cell_input pre'))
        if (code.scrollWidth > code.clientWidth + 1) {
            const lines = code.innerText.split('\\n').sort((a, b) => b.length - a.length);
            wide.push(`code scrolls by ${code.scrollWidth - code.clientWidth} px: ${lines[0].trim()}`);
        }
    for (const box of document.querySelectorAll('article *'))
        if (box.scrollWidth > box.clientWidth + 1 && scrolls(box)
                && !getComputedStyle(box).backgroundImage.includes('gradient'))
            wide.push(`scrolls without a shadow: <${box.tagName} class="${box.className}">`);
    if (document.querySelector('article .highlight pre:not(:has(> .line))'))
        wide.push('the rest of wrapped code is not indented: lines.js has not run');
    return wide;
}"""


# Finds parts of a printed page that are cut, closed or in front of the text.
CUT = """() => {
    const wrong = [];
    for (const code of document.querySelectorAll('article pre'))
        if (code.scrollWidth > code.clientWidth + 1) wrong.push(`code is cut: ${code.innerText.slice(0, 40)}`);
    for (const part of document.querySelectorAll('details:not([open])'))
        wrong.push(`details are closed: ${part.innerText.slice(0, 40)}`);
    for (const part of document.querySelectorAll('body *'))
        if (['fixed', 'sticky'].includes(getComputedStyle(part).position) && part.checkVisibility())
            wrong.push(`<${part.tagName} class="${part.className}"> is in front of the text`);
    return wrong;
}"""


class Page(HTMLParser):
    """The anchors, links and loaded files of a page, and its text outside of code and formulas."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.ids = path, set[str]()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.raw: list[str] = []
        self.undescribed: list[str] = []
        self._open: list[tuple[str, bool]] = []  # tag, and whether text in it may look like markup
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script") and "src" in values:
            self.loads.append(values["src"])
        if tag == "img" and (not values.get("alt") or values["alt"] == values["src"]):
            self.undescribed.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon"):
            self.loads.append(values["href"])
        if tag not in VOID:
            verbatim = tag in ("pre", "code", "script", "style", "svg") or "math" in values.get("class", "").split()
            self._open.append((tag, verbatim or (bool(self._open) and self._open[-1][1])))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if RAW.search(data) and not (self._open and self._open[-1][1]):
            self.raw.append(data.strip()[:80])


class Article(HTMLParser):
    """The visible text of a page's article, without spaces, formulas and line numbers, and with plain quotes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self._open = [("", False)]  # tag, and whether its text counts
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        without = {"headerlink", "linenos", "math"} & set((dict(attrs).get("class") or "").split())
        if tag not in VOID:
            inside = tag == "article" or self._open[-1][1]
            self._open.append((tag, inside and not without and tag not in ("script", "style")))

    def handle_endtag(self, tag: str) -> None:
        while self._open[-1][0] and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open[-1][1]:
            self.text += "".join(data.split()).translate(str.maketrans("“”‘’", "\"\"''"))


def check_single_files(site: Path) -> list[str]:
    """The pages that are also single files in docs: the place where the text of the file differs, one line each."""
    wrong = []
    for name in ("fingers.html", "one_page.html"):
        of_site, of_file = Article(site / name).text, Article(ROOT / "docs" / name).text
        at = next((n for n, (a, b) in enumerate(zip(of_site, of_file)) if a != b), min(len(of_site), len(of_file)))
        if of_site != of_file or not of_file:
            wrong.append(f"{name}: the site has {of_site[at : at + 40]!r}, docs/{name} has {of_file[at : at + 40]!r}; "
                         "was it made by `python -m docs.one_file`?")
    return wrong


def check_files(site: Path) -> list[str]:
    """The errors found in the files, one line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    wrong = [] if len(pages) > 10 else [f"{site} holds {len(pages)} pages: is it built?"]
    for path, page in pages.items():
        name = path.relative_to(site)
        wrong += [f"{name}: raw markup in {text!r}" for text in page.raw]
        wrong += [f"{name}: {source} has no description" for source in page.undescribed]
        wrong += [f"{name}: loads {source} from the network" for source in page.loads if urlsplit(source).netloc]
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{name}: the target of {link} does not exist")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                wrong.append(f"{name}: the anchor of {link} does not exist")
    return wrong + check_single_files(site)


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the site on this machine; the value is its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def copyfile(self, source: Any, outputfile: Any) -> None:
            with contextlib.suppress(ConnectionError):  # the browser has already opened the next page
                super().copyfile(source, outputfile)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def failure_of(request: Any) -> list[str]:
    """The reason why a request failed, unless the browser cancelled it to open the next page."""
    return [] if "ERR_ABORTED" in (request.failure or "") else [f"{request.url} failed: {request.failure}"]


def refusal_of(response: Any) -> list[str]:
    """The status of a request that the server refused."""
    return [f"{response.url}: {response.status}"] if response.status >= 400 else []


def check_in_browser(site: Path, chromium: str, screenshots: Path | None) -> list[str]:
    """The errors found in the browser, one line each."""
    from playwright.sync_api import sync_playwright

    names = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]
    alike = [name for name in names if name.startswith("book/")]  # a page for each file of source: some are enough
    names = [name for name in names if name not in alike or alike.index(name) % 8 == 0]
    tutorials = [name for name in names if name.startswith("tutorials/") and name != "tutorials/index.html"]
    looked_at = ["index.html", *tutorials[:1], "api/ops.html", "book/ops-06-attention.html", "derivations/softmax.html"]
    names += [name for name in looked_at if name not in names]
    wrong: list[str] = []
    formulas = 0
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport=DESKTOP, color_scheme=scheme)
            tab.on("pageerror", lambda error: wrong.append(f"an error in a script: {error}"))
            tab.on("requestfailed", lambda request: wrong.extend(failure_of(request)))
            tab.on("response", lambda response: wrong.extend(refusal_of(response)))
            for name in names if scheme == "light" else looked_at:
                tab.set_viewport_size(DESKTOP)
                tab.goto(f"{address}/{name}")
                math = tab.locator(".math").count()
                if math:
                    tab.wait_for_function("window.MathJax && MathJax.startup && MathJax.startup.promise")
                    tab.evaluate("MathJax.startup.promise.then(() => true)")
                drawn = tab.locator("mjx-container svg").count()
                formulas += drawn
                if drawn < math or tab.locator("[data-mml-node=merror]").count():
                    wrong.append(f"{name}: {drawn} of {math} formulas drawn, "
                                 f"{tab.locator('[data-mml-node=merror]').count()} with an error")
                ground = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
                if (int(ground) < 128) != (scheme == "dark"):
                    wrong.append(f"{name}: the background is not {scheme}")
                for size in (DESKTOP, PHONE):
                    tab.set_viewport_size(size)
                    wide = tab.evaluate(TOO_WIDE, size == DESKTOP)
                    wrong.extend(f"{name} ({size['width']} px, {scheme}): {one}" for one in wide)
                    if screenshots and name in looked_at:
                        screenshots.mkdir(parents=True, exist_ok=True)
                        file = f"{name.removesuffix('.html').replace('/', '-')}-{size['width']}-{scheme}.png"
                        tab.screenshot(path=screenshots / file, full_page=True)
            tab.close()
        tab = browser.new_page(viewport=PAPER)
        tab.emulate_media(media="print")
        for name in looked_at:
            tab.goto(f"{address}/{name}")
            tab.evaluate("dispatchEvent(new Event('beforeprint'))")
            wrong.extend(f"{name} (printed): {one}" for one in tab.evaluate(CUT))
        tab.close()
        tab = browser.new_page(viewport=DESKTOP)
        tab.goto(f"{address}/index.html")
        tab.locator("input[name=q]").first.fill("softmax_backward")
        tab.keyboard.press("Enter")
        first = tab.locator("#search-results li a").first
        first.wait_for(timeout=20_000)
        found = first.get_attribute("href") or ""
        tab.goto(f"{address}/{found}")  # loads to the end, unlike a click
        if "softmax_backward" not in tab.content():
            wrong.append(f"the first result of a search for softmax_backward, {found}, does not contain this name")
        tab.goto(f"{address}/api/ops.html")
        if not tab.locator("dt[id='numpy_attention.softmax_backward']").count():
            wrong.append("api/ops.html has no entry for softmax_backward")
        for name, sheets in (("one_page.html", 2), ("one_sheet.html", 1)):
            tab.goto(f"{address}/{name}")
            printed = len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True)))
            if printed != sheets:
                wrong.append(f"{name} is printed on {printed} A4 pages, not on {sheets}")
        browser.close()
    if not tutorials or not formulas:
        wrong.append(f"{len(tutorials)} tutorials, {formulas} formulas: nothing was checked")
    print(f"opened {len(names)} pages, {formulas} formulas drawn, search used")
    return wrong


def main() -> int:
    """Run the checks and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--screenshots", type=Path)
    options = parser.parse_args()
    site = options.site.resolve()
    wrong = check_files(site)
    if options.browser:
        wrong += check_in_browser(site, options.chromium, options.screenshots)
    print("\n".join(wrong) or f"{site}: no errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
