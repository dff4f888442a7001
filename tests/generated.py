"""Parts of a page that a script writes: the text between <!-- name --> and <!-- end of name -->."""

import re


def block(name: str, content: str) -> str:
    """The content with its markers."""
    return f"<!-- {name} -->\n\n{content}\n\n<!-- end of {name} -->"


def with_block(page: str, name: str, content: str) -> str:
    """The page with new content between the markers, which must be on the page exactly once."""
    pattern = f"<!-- {re.escape(name)} -->.*?<!-- end of {re.escape(name)} -->"
    page, count = re.subn(pattern, lambda _: block(name, content), page, flags=re.DOTALL)
    assert count == 1, f"the page needs <!-- {name} --> and <!-- end of {name} --> once, but has them {count} times"
    return page
