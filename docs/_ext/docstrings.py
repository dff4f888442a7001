"""Converts the docstrings of the sources, plain text with formulas, to reStructuredText.

A paragraph that is indented or aligned in columns becomes a separate block, `>>>` becomes an example, and
`Formula:`, `Shapes:`, ... become a list of fields. Everything else is prose, and its special characters are escaped.
"""

import re
import textwrap

LABELS = ("Formula", "Shapes", "Units", "Raises", "Source")
LABEL = re.compile(rf"({'|'.join(LABELS)}):\s+")
NEXT_LABEL = re.compile(rf"(?<=[.;])\s+(?=(?:{'|'.join(LABELS)}):\s)")
ITEM = re.compile(r"(\*|-|\d+\.) +")


def to_rst(docstring: str, names: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """The lines of reStructuredText for a docstring; `names` are the public names to link."""
    out: list[str] = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = [line for line in paragraph.split("\n") if line.strip()]
        start = 0
        while start < len(lines):  # an indented formula may follow a paragraph without a blank line
            plain = _is_plain(lines[start])
            end = start + 1
            while end < len(lines) and (_is_plain(lines[end]) == plain or _continues(lines, start)):
                end += 1
            out += [*_block(lines[start:end], names), ""]
            start = end
    return out


def inline(text: str, names: frozenset[str] | set[str] = frozenset()) -> str:
    """A piece of prose: `code` becomes code or a link, and all other special characters are escaped."""
    parts = re.split(r"`+([^`]+)`+", " ".join(text.split()).replace(" -> ", " → "))
    for i, part in enumerate(parts):
        if i % 2 == 0:
            part = re.sub(r"([\\`*_|])", r"\\\1", part)
            parts[i] = re.sub(r"::$", ":", part)
        elif part in names:
            parts[i] = f":py:obj:`~numpy_attention.{part}`"
        else:
            parts[i] = f"``{part}``"
        if i and i % 2 == 0 and part and not part[0].isspace():
            parts[i] = "\\ " + parts[i]
        if i % 2 == 0 and i + 1 < len(parts) and part and not part[-1].isspace():
            parts[i] += "\\ " if part[-1].isalnum() else ""
    return "".join(parts)


def _is_plain(line: str) -> bool:
    return not line.startswith("  ") and not re.search(r"\S   +\S", line)


def _continues(lines: list[str], start: int) -> bool:
    """Whether the next indented lines belong to this paragraph: true after a list item, a field or an example."""
    first = lines[start]
    return bool(ITEM.match(first) or LABEL.match(first) or first.startswith(">>>"))


def _block(lines: list[str], names: frozenset[str] | set[str]) -> list[str]:
    first = lines[0]
    if first.lstrip().startswith(">>>"):
        return _code("pycon", lines)
    label = LABEL.match(first)
    if label:
        return [_field(field, names) for field in NEXT_LABEL.split("\n".join(lines))]
    if not _is_plain(first):
        return _code("text", lines)
    if ITEM.match(first):
        items: list[list[str]] = []
        for line in lines:
            if ITEM.match(line):
                items.append([])
            items[-1].append(line)
        marker = ITEM.match(first)
        assert marker
        mark = "#." if marker[1][0].isdigit() else "*"
        return [f"{mark} {inline(ITEM.sub('', ' '.join(part.strip() for part in item), 1), names)}" for item in items]
    text = inline("\n".join(lines), names)
    return ["\\" + text if re.match(r"[-+.:>#=~(]", text) else text]


def _field(text: str, names: frozenset[str] | set[str]) -> str:
    """A field from a line like `Shapes: x -> y`; a formula that contains no backquotes becomes code completely."""
    label, _, text = text.partition(":")
    text = text.strip()
    if text.startswith("-> "):
        text = "→ " + text[3:]
    formula = label == "Formula" and "`" not in text
    return f":{label}: " + (f"``{' '.join(text.split())}``" if formula else inline(text, names))


def _code(language: str, lines: list[str]) -> list[str]:
    body = textwrap.dedent("\n".join(lines)).split("\n")
    return [f".. code-block:: {language}", "", *("   " + line for line in body)]


def setup(app):
    """Make autodoc convert our docstrings with `to_rst`."""
    import pages

    names = set(pages.public_names())

    def process(app, what, name, obj, options, lines):
        text = "\n".join(lines)
        if getattr(obj, "__module__", "").startswith("numpy_attention"):
            lines[:] = to_rst(text, names)
            chapter = pages.chapter_of(obj)
            if chapter and what in ("function", "class"):
                lines += [f":In the book: :doc:`/book/{chapter}`", ""]

    def skip(app, what, name, obj, skipped, options):
        """Skip the fields of named tuples, whose docstrings contain only a number."""
        return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
