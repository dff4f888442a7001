"""Make two pages of the site as single files that need no server and no network: run `python -m docs.one_file`.

docs/fingers.html is docs/fingers.md with its style and its script inside; docs/one_page.html is docs/one_page.md with
the lines of tutorials/one_page_gpt.py and their notes. They are stored, so a reader can open them from a copy of the
repository. Their links lead to files of the repository. Markdown that this file does not know is an error.
"""

import html
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from notes import notes_of, pieces, read_notes  # noqa: E402

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main class="content"><article>
{article}
</article></main>
<footer>This page is one file and needs no network. <code>python -m docs.one_file</code> makes it from
<a href="{name}.md">docs/{name}.md</a>.</footer>
</body>
</html>
"""

# ---- Formulas: the little TeX of these two pages ----

SIGNS = {
    "log": "log", "max": "max", "approx": "≈", "sum": "∑", "infty": "∞", "cdot": "·", "bigl": "", "bigr": "", ",": " ",
}


def formula(tex: str) -> str:
    """A formula as HTML. An unknown command of TeX is an error."""
    tokens = iter(re.findall(r"\\[a-z]+ ?|\\,|.", tex))
    return f'<span class="math">{_sequence(tokens)}</span>'


def _sequence(tokens: Iterator[str]) -> str:
    """The HTML of the tokens up to a closing brace or the end."""
    return "".join(_one(token, tokens) for token in iter(lambda: next(tokens, "}"), "}"))


def _one(token: str, tokens: Iterator[str]) -> str:
    if token == "{":
        return _sequence(tokens)
    if token in ("_", "^"):
        tag = "sub" if token == "_" else "sup"
        return f"<{tag}>{_one(next(tokens), tokens)}</{tag}>"
    if token.strip() == "\\sqrt":
        return f'√<span class="root">{_one(next(tokens), tokens)}</span>'
    if token.startswith("\\"):
        return SIGNS[token[1:].strip()] + (" " if token.endswith(" ") else "")
    return f"<i>{token}</i>" if token.isalpha() else token.replace("-", "−")


# ---- Markdown ----


def address(link: str) -> str:
    """The relative path of the file that a link of a page in docs/, or of a note, means."""
    if link.startswith("https://"):
        return link
    place, mark, anchor = link.partition("#")
    file = (ROOT if place.startswith(("tutorials/", "numpy_attention/")) else DOCS) / place  # of a note, or of a page
    if not file.is_file():
        raise ValueError(f"the link to {link} leads to no file")
    return Path(os.path.relpath(file.resolve(), DOCS)).as_posix() + mark + anchor


def inline(text: str) -> str:
    """Text with `code`, $formulas$, [links](file) and **bold** words as HTML."""
    found = []
    for part in re.split(r"(`[^`]+`|\$[^$]+\$|\[[^]]+\]\([^)]+\)|\*\*.+?\*\*)", text, flags=re.DOTALL):
        if part.startswith("`"):
            found.append(f"<code>{html.escape(part[1:-1], quote=False)}</code>")
        elif part.startswith("$"):
            found.append(formula(part[1:-1]))
        elif part.startswith("**"):
            found.append(f"<strong>{inline(part[2:-2])}</strong>")
        elif link := re.fullmatch(r"\[(.+)\]\((.+)\)", part, re.DOTALL):
            found.append(f'<a href="{html.escape(address(link[2]))}">{inline(link[1])}</a>')
        elif re.search(r"[`$*{}]|\]\(", part):
            raise ValueError(f"this Markdown is not known here: {part!r}")
        else:
            found.append(html.escape(part, quote=False))
    return "".join(found)


def block(text: str) -> str:
    """A heading, a list or a paragraph."""
    if heading := re.fullmatch(r"(#+) (.+)", text):
        level = len(heading[1])
        return f"<h{level}>{inline(heading[2])}</h{level}>"
    if item := re.match(r"(\d+\.|\*) ", text):
        tag = "ul" if item[1] == "*" else "ol"
        items = re.split(r"^(?:\d+\.|\*) +", text, flags=re.MULTILINE)[1:]
        return f"<{tag}>\n" + "".join(f"<li>{inline(one.strip())}</li>\n" for one in items) + f"</{tag}>"
    if re.match(r"[|>:<!-]", text):
        raise ValueError(f"this Markdown is not known here: {text[:60]!r}")
    return f"<p>{inline(text)}</p>"


def page(name: str) -> str:
    """The page docs/NAME.md as one file of HTML."""
    text = re.sub(r"\A---\n.*?\n---\n", "", (DOCS / f"{name}.md").read_text("utf-8"), flags=re.DOTALL)
    article = []
    for number, part in enumerate(re.split(r"^```(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)):
        kind, _, inside = part.partition("\n")
        if number % 2 == 0:
            article += [block(one.strip()) for one in re.split(r"\n\n+", part) if one.strip()]
        elif kind == "{raw} html":
            article.append(re.sub(r'<(link|script)[^>]*="_static/([\w.]+)">(</script>)?', _static, inside))
        elif inside.strip() == ".. include:: /book/one_page_gpt.inc":
            article += noted(ROOT / "tutorials" / "one_page_gpt.py")
        elif kind in ("sh", "text"):
            lines = html.escape(inside, quote=False).splitlines()
            article.append(f"<pre>{''.join(map(line_of_code, lines))}</pre>")
        else:
            raise ValueError(f"this block is not known here: {kind}")
    title = re.search(r"^# (.+)", text, re.MULTILINE)
    assert title, f"{name}.md has no title"
    style = (DOCS / "one_file.css").read_text("utf-8")
    return PAGE.format(title=title[1], style=style, name=name, article="\n".join(article))


def _static(tag: re.Match[str]) -> str:
    inside = (DOCS / "_static" / tag[2]).read_text("utf-8")
    assert "</script" not in inside
    return f"<style>\n{inside}</style>" if tag[1] == "link" else f"<script>\n{inside}</script>"


# ---- Code with notes ----

WORDS = "and|as|assert|def|else|for|from|if|import|in|lambda|not|or|return"
TOKEN = re.compile(rf'(?P<comment>#.*)|(?P<string>"""(?s:.*?)"""|"[^"\n]*")|(?P<keyword>\b(?:{WORDS})\b)')


def noted(path: Path) -> list[str]:
    """The code of a file with its notes."""
    source = path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    found = [f'<div class="caption"><a href="../{name}">{name}</a></div>', '<div class="one-page">']
    for piece in pieces(source, read_notes(notes_of(path), source), 1):
        code = "\n".join(source.splitlines()[piece.first - 1 : piece.last])
        coloured = TOKEN.sub(_coloured, html.escape(code, quote=False))
        lines = [line_of_code(line, piece.first + n) for n, line in enumerate(coloured.split("\n"))]
        note = f'<div class="margin-note">{inline(piece.text).replace(chr(10), "<br>")}</div>\n' if piece.text else ""
        found.append(f'<div class="noted">{note}<pre>{"".join(lines)}</pre></div>')
    return [*found, "</div>"]


def _coloured(token: re.Match[str]) -> str:
    lines = token[0].split("\n")  # a long string has several lines
    return "\n".join(f'<span class="{token.lastgroup}">{line}</span>' for line in lines)


def line_of_code(line: str, number: int | None = None) -> str:
    """A line; in a narrow window it wraps, and its rest is indented."""
    indent = len(line) - len(line.lstrip())
    shown = "" if number is None else f'<span class="linenos">{number}</span>'
    return f'<span class="line" style="--indent: {indent}ch">{shown}{line or " "}\n</span>'


PAGES: dict[str, Callable[[], str]] = {
    "fingers.html": lambda: page("fingers"), "one_page.html": lambda: page("one_page"),
}

if __name__ == "__main__":
    for file, made in PAGES.items():
        (DOCS / file).write_text(made(), encoding="utf-8")
        print(f"docs/{file}")
