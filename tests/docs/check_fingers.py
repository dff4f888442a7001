"""Compare the interactive page with the package: python tests/docs/check_fingers.py build/site

The page computes attention in JavaScript. At random settings, with and without each mistake, its numbers must agree
with those of the package and of the gallery to 1e-9. After a number is changed by keyboard, all others must also agree.
Each sum that explains a number must give this number, with each mistake too. After a click, a drag or a key, the text
must explain the chosen number. On a phone, no matrix may overlap another, and a tapped number must stay
visible.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from check_site import FLAGS, PHONE, served

from numpy_attention import scaled_dot_product_attention
from numpy_attention.ops.c03_softmax import SoftmaxCache, softmax_backward
from numpy_attention.tutor import MISTAKES

# Finds two matrices that overlap, and maps that are wider than the window.
OVERLAPS = """() => {
    const wrong = [], boxes = [...document.querySelectorAll('.fingers-map table')].map(
        table => [table.dataset.matrix, table.getBoundingClientRect()]);
    for (const [one, a] of boxes)
        for (const [other, b] of boxes)
            if (one < other && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
                wrong.push(`${one} overlaps ${other}`);
    for (const map of document.querySelectorAll('.fingers-map'))
        if (map.scrollWidth > map.clientWidth + 1)
            wrong.push(`a map scrolls by ${map.scrollWidth - map.clientWidth} px`);
    return wrong;
}"""

Arrays = dict[str, np.ndarray]
INPUTS = ("q", "k", "v", "dy")


def expected(given: Arrays, scale: float, mistake: str = "") -> Arrays:
    """The numbers that the package computes, with a mistake of the gallery if one is given."""
    q, k, v, dy, mask = (given[name] for name in (*INPUTS, "mask"))
    options: dict[str, Any] = {"mask": mask, "scale": scale}
    known = MISTAKES.get(mistake)
    of_attention = known is not None and known.covers == "scaled_dot_product_attention"
    y, cache = scaled_dot_product_attention(q, k, v, **options)
    weights, dweights = cache.weights, dy @ v.T
    by = known.made("softmax_backward") if known and not of_attention else softmax_backward
    dscores = by(dweights, SoftmaxCache(weights, -1))
    found = {"weights": weights, "y": y, "dweights": dweights}
    if known and of_attention:
        made, its_cache = known.made("scaled_dot_product_attention")(q, k, v, **options)
        np.testing.assert_array_equal(made, y)
        dq, dk, dv, _ = known.made("scaled_dot_product_attention_backward")(dy, its_cache)
    else:
        dq, dk, dv = scale * dscores @ k, scale * dscores.T @ q, weights.T @ dy
        found["dscores"] = dscores
    return found | {"dq": dq, "dk": dk, "dv": dv}


def compare(found: dict[str, Any], right: Arrays, where: str) -> list[str]:
    """The arrays that differ by more than 1e-9, one line each."""
    wrong = []
    for name, array in right.items():
        off = np.max(np.abs(np.array(found[name], np.float64).reshape(array.shape) - array), initial=0.0)
        if not off <= 1e-9 * max(1.0, float(np.max(np.abs(array)))):
            wrong.append(f"fingers: {where}: {name} is off by {off:.1e}")
    return wrong


def at_random(tab: Any, mistake: str, seed: int) -> list[str]:
    """Compare one random setting."""
    rng = np.random.default_rng(seed)
    T, d = rng.integers(1, 7), rng.integers(1, 5)
    given = {name: rng.standard_normal((T, d)) * rng.choice([0.1, 1.0, 5.0]) for name in INPUTS}
    given["mask"] = rng.random((T, T)) < rng.choice([0.3, 0.7, 1.0])
    scale = float(rng.uniform(0.1, 3.0))
    inputs = {name: array.tolist() for name, array in given.items()} | {"scale": scale, "mistake": mistake}
    found = tab.evaluate(f"fingers.compute({json.dumps(inputs)})")
    return compare(found, expected(given, scale, mistake), f"setting {seed} {mistake}")


def as_explained(tab: Any, mistake: str, seed: int) -> list[str]:
    """Check that each sum on the page equals the number that it explains, with a mistake if one is given."""
    rng = np.random.default_rng(seed)
    T, d = int(rng.integers(2, 7)), int(rng.integers(2, 5))
    given = {name: rng.standard_normal((T, d)) for name in INPUTS} | {"mask": rng.random((T, T)) < 0.7}
    inputs = {name: array.tolist() for name, array in given.items()} | {"scale": 0.7, "mistake": mistake}
    found = tab.evaluate(f"""(() => {{
        const inputs = {json.dumps(inputs)}, all = {{...inputs, ...fingers.compute(inputs), T: {T}, d: {d}}}, sums = [];
        for (const name of ['scores', 'weights', 'y', 'dweights', 'dscores', 'dq', 'dk', 'dv'])
            all[name].forEach((row, i) => row.forEach((value, j) => {{
                const {{ names, cells, note }} = fingers.explain(name, i, j, all, inputs.mistake);
                const cell = `${{name}}[${{i}}, ${{j}}]`;
                if (!note) sums.push([cell, value, names, cells.map(one => one.join())]);
                else if (value && value !== -Infinity) sums.push([cell, value, "0", []]);
            }}));
        return [sums, all]; }})()""")
    wrong, others = [], ("mask", "mistake")
    numbers = {name: np.array(value, np.float64) for name, value in found[1].items() if name not in others}
    scores = given["q"] @ given["k"].T * 0.7
    u = np.exp(scores - scores.max(1, keepdims=True))
    numbers["u"] = u / u.sum(1, keepdims=True)  # the weights without the mask; they are not on the page
    for cell, value, names, cells in found[0]:
        expression = names.replace("·", "*").replace("−", "-").replace("…", "1.0")
        result = eval(expression, {"exp": np.exp, **numbers})  # such as scale * (q[0, 1] * k[2, 1]), from our script
        mentioned = set(re.findall(r"([a-z]+)\[(\d), (\d)\]", names))
        if not np.isclose(result, value, rtol=0, atol=1e-9):
            wrong.append(f"fingers: {mistake} {cell} = {value}, but its sum {names} is {result}")
        if not set(cells) <= {",".join(one) for one in mentioned} or bool(cells) != bool(mentioned):
            wrong.append(f"fingers: {mistake} {cell} highlights {cells}, but its sum is {names}")
    return wrong


def shown(tab: Any) -> tuple[Arrays, Arrays, float]:
    """The numbers on the page: the inputs, the computed numbers, and the scale."""
    read = """[...document.querySelectorAll('.fingers:not([data-small]) td')].map(
        cell => [cell.dataset.cell.split(','), cell.dataset.value, cell.classList.contains('hidden-pair')])"""
    cells = tab.evaluate(read)
    rows: dict[str, dict[tuple[int, int], tuple[float, bool]]] = {}
    for (name, i, j), value, hidden in cells:
        rows.setdefault(name, {})[int(i), int(j)] = (float(value.replace("Infinity", "inf")), hidden)
    arrays = {
        name: np.array([[one[i, j][0] for j in range(max(one)[1] + 1)] for i in range(max(one)[0] + 1)])
        for name, one in rows.items()
    }
    mask = np.array([[not rows["weights"][i, j][1] for j in range(arrays["weights"].shape[1])]
                     for i in range(len(arrays["weights"]))])
    given = {name: arrays.pop(name) for name in INPUTS} | {"mask": mask}
    return given, arrays, float(tab.evaluate("fingers.all[0].scale"))


def as_shown(tab: Any, where: str, mistake: str = "") -> list[str]:
    """Compare the numbers on the page with those of the package."""
    given, found, scale = shown(tab)
    right = expected(given, scale, mistake)
    wrong = compare({name: array.tolist() for name, array in found.items()}, right, where)
    marked = tab.locator(".fingers:not([data-small]) td.wrong").count()
    truth = expected(given, scale)
    apart = sum(int(np.sum(np.abs(right[name] - truth[name]) > 1e-12)) for name in right)
    if marked < apart or bool(marked) != bool(apart):  # a mistake in the whole backward gives no dscores to compare
        wrong.append(f"fingers: {where}: {marked} numbers are marked as wrong, but {apart} are wrong")
    counts = {name: int(np.sum(np.abs(right[name] - truth[name]) > 1e-12)) for name in ("dq", "dk", "dv")}
    verdict = ", ".join(f"{name} {n}/{right[name].size} wrong" if n else f"{name} right" for name, n in counts.items())
    if (text := tab.locator(".fingers-verdict").inner_text()) != verdict:
        wrong.append(f"fingers: {where}: the verdict is {text!r}, but must be {verdict!r}")
    return wrong


def by_hand(tab: Any) -> list[str]:
    """Change numbers, hide a pair and choose a mistake, with the keyboard only."""
    wrong = as_shown(tab, "at first")
    before, _, _ = shown(tab)
    tab.locator('[data-cell="q,0,0"]').first.focus()
    for key in ("ArrowDown", "ArrowRight", "+", "+", "-", "+"):
        tab.keyboard.press(key)
    after, _, _ = shown(tab)
    moved = after["q"] - before["q"]
    if not np.isclose(moved[1, 1], 0.2) or np.count_nonzero(np.abs(moved) > 1e-9) != 1:
        wrong.append(f"fingers: + + - + at q[1, 1] changed q by {moved.tolist()}")
    wrong += as_shown(tab, "after a change of q")
    if "q[1, 1]" not in tab.locator(".fingers-output").first.inner_text():
        wrong.append("fingers: the changed number is not named")
    tab.locator('[data-cell="weights,2,0"]').first.focus()
    tab.keyboard.press("m")
    if shown(tab)[0]["mask"][2, 0]:
        wrong.append("fingers: the key m does not hide a pair")
    named = tab.locator("[data-control=maskName] option:checked").inner_text()
    if named != "changed by hand" or not ("&maskName=hand&" in tab.url and tab.url.endswith("&seen=1000110001101111")):
        wrong.append(f"fingers: after the key m the menu is {named!r} and the address {tab.url}")
    tab.keyboard.press("m")
    if "&maskName=causal&" not in tab.url or "seen" in tab.url:
        wrong.append(f"fingers: after the key m twice the address is {tab.url}")
    tab.keyboard.press("m")
    wrong += as_shown(tab, "with a hidden pair")
    dq = tab.locator('[data-cell="dq,1,0"]').first
    dq.focus()
    text, error = tab.locator(".fingers-output").first.inner_text(), tab.locator(".fingers-valley output").inner_text()
    if "dscores[1, 0] · k[0, 0]" not in text or tab.locator(".fingers:not([data-small]) td.lit").count() != 8:
        wrong.append(f"fingers: dq[1, 0] is explained by {text!r}")
    if not float(error.rsplit(" ", 1)[1]) < 1e-8:
        wrong.append(f"fingers: the difference disagrees with dq[1, 0]: {error}")
    for mistake in tab.evaluate("Object.keys(fingers.MISTAKES)"):
        tab.locator("[data-control=mistake]").select_option(mistake)
        wrong += as_shown(tab, mistake, mistake)
        text, value = tab.locator(".fingers-output").first.inner_text(), dq.inner_text()
        if ("\nwith the mistake: " in text) != ("without the mistake" in text) or value not in text.splitlines()[-1]:
            wrong.append(f"fingers: {mistake}: dq[1, 0] = {value} is explained by {text!r}")
    tab.locator("[data-control=mistake]").select_option("")
    for control, value in (("values", "identity"), ("cotangent", "ones"), ("maskName", "nothing")):
        tab.locator(f"[data-control={control}]").select_option(value)
        wrong += as_shown(tab, f"{control} {value}")
    tab.locator("[data-control=T]").focus()
    tab.keyboard.press("ArrowLeft")  # three words of width three: v is the identity, dy all ones
    if np.max(np.abs(shown(tab)[1]["dscores"])) > 1e-12:
        wrong.append("fingers: the softmax's gradient is not zero for a dy of ones")
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    return wrong + as_shown(tab, "one word")


def with_a_mouse(tab: Any) -> list[str]:
    """After a click, a drag or a key, the text explains the chosen number and not the one below the mouse."""
    wrong = []

    def expect(words: str, doing: str) -> None:
        if words not in (text := tab.locator(".fingers-output").first.inner_text()):
            wrong.append(f"fingers: after {doing} the text is {text!r}, without {words!r}")

    tab.locator('[data-cell="q,1,1"]').first.click()
    expect("q[1, 1]", "a click")
    tab.keyboard.press("ArrowRight")
    expect("q[1, 2]", "a click and an arrow key")
    tab.keyboard.press("m")
    expect("hides a pair", "the key m at q")
    tab.locator('[data-cell="k,0,0"]').first.hover()
    expect("k[0, 0]", "a move of the mouse")
    tab.mouse.down()
    tab.mouse.move(5, 5)
    tab.mouse.up()
    expect("k[0, 0]", "a drag")
    tab.locator("[data-control=maskName]").select_option("nothing")
    tab.locator('[data-cell="weights,3,1"]').first.focus()
    expect("all keys of this row are hidden", "the choice of a weight of a hidden row")
    return wrong


def on_a_phone(tab: Any, address: str) -> list[str]:
    """On a phone, with five and six words: no matrix overlaps another, and a tapped number stays visible."""
    wrong = []
    for T, name, i, j in ((5, "v", 4, 0), (6, "weights", 5, 1), (6, "dscores", 5, 5)):
        tab.goto(f"{address}/index.html")  # another page: a new address with only another # would not load anything
        tab.goto(f"{address}/fingers.html#T={T}&d=4&mistake=diagonal_only")
        apart = tab.evaluate(OVERLAPS)
        wrong += [f"fingers: on a phone with {T} words, {one}" for one in apart]
        cell = tab.locator(f'[data-cell="{name},{i},{j}"]').first
        cell.evaluate("""cell => {
            scrollBy({ top: cell.getBoundingClientRect().bottom - innerHeight + 60, behavior: 'instant' });
            cell.focus({ preventScroll: true });  // a tap also focuses the cell
        }""")
        below = cell.evaluate("""cell => cell.getBoundingClientRect().bottom
            - document.querySelector('.fingers-foot').getBoundingClientRect().top""")
        if below > 0:
            wrong.append(f"fingers: on a phone, the explanation hides {below:.0f} px of {name}[{i}, {j}] after a tap")
    return wrong


def check(site: Path, chromium: str) -> list[str]:
    """The errors, one line each."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page()
        tab.on("pageerror", lambda error: wrong.append(f"fingers: an error in the script: {error}"))
        tab.goto(f"{address}/fingers.html")
        mistakes = tab.evaluate("Object.keys(fingers.MISTAKES)")
        for seed, mistake in enumerate(4 * ["", *mistakes]):
            wrong += at_random(tab, mistake, seed)
        for mistake in ["", *mistakes]:
            wrong += as_explained(tab, mistake, 3) + as_explained(tab, mistake, 4)
        wrong += by_hand(tab)
        mouse = browser.new_page()
        mouse.goto(f"{address}/fingers.html")
        wrong += with_a_mouse(mouse)
        tab.goto(f"{address}/index.html")
        if tab.locator(".fingers[data-small] td").count() == 0:
            wrong.append("index.html has no interactive figure")
        phone = browser.new_page(viewport=PHONE, has_touch=True, is_mobile=True)
        wrong += on_a_phone(phone, address)
        browser.close()
    print(f"fingers: {4 * (len(mistakes) + 1)} random settings, and by keyboard")
    return wrong


def main() -> int:
    """Run the checks and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    wrong = check(options.site.resolve(), options.chromium)
    print("\n".join(wrong) or "fingers: no errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
