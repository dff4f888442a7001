"""Draw all diagrams of the site: run `python -m docs.diagrams` in a copy of the repository."""

from docs.diagrams.drawings import DRAWINGS, FOLDER

FOLDER.mkdir(exist_ok=True)
for draw in DRAWINGS:
    drawing = draw()
    (FOLDER / f"{drawing.name}.svg").write_text(drawing.svg(), encoding="utf-8")
    print(f"{drawing.name}.svg")
