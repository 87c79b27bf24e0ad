"""HTML pages that show an experiment. A page is one file that loads no others. SVG pictures are made here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_CSS: Final = """
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1d2733; background: #fff; margin: 0 auto;
  padding: 2em 1.2em 4em; max-width: 60em; }
h1 { font-size: 1.8em; line-height: 1.2; } h2 { margin-top: 2.2em; font-size: 1.3em; }
h3 { margin: 1.4em 0 .3em; font-size: 1em; }
p, li { max-width: 46em; } .note { color: #5a6775; font-size: .9em; }
table { border-collapse: collapse; font-size: .92em; } .wide { overflow-x: auto; }
th, td { padding: .35em .8em; border-bottom: 1px solid #d9dfe5; text-align: right; font-variant-numeric: tabular-nums; }
th { color: #5a6775; font-weight: 600; vertical-align: bottom; } td { white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
td.bad { color: #c0262c; font-weight: 700; } td.good { color: #1c7c4a; font-weight: 700; }
svg { width: 100%; height: auto; display: block; } img { max-width: 100%; height: auto; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #5a6775; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(24em, 1fr)); gap: 1em 2em; }
code { background: #f0f3f6; padding: .1em .35em; border-radius: 3px; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return an HTML document of these parts, which are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class(kind)}>{escape(text.strip())}</p>"


def command(text: str) -> str:
    """Return a command line."""
    return f"<p><code>{escape(text)}</code></p>"


def bullets(items: Iterable[str]) -> str:
    """Return a list of plain texts."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def table(head: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]]) -> str:
    """Return a table of plain texts. A cell is a text, or a text with its class (good or bad)."""
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    for row in rows:
        cells = [(cell, "") if isinstance(cell, str) else cell for cell in row]
        lines.append("".join(f"<td{_class(kind)}>{escape(text)}</td>" for text, kind in cells))
    return '<div class="wide"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def picture(width: float, height: float, shapes: Iterable[str], label: str) -> str:
    """Return an SVG picture. `label` says in a sentence what the picture shows, for readers who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">' + "".join(shapes) + "</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def path(points: Iterable[tuple[float, float]], colour: str, width: float = 2) -> str:
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width:g}" stroke-linejoin="round"/>'
    )


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def words(x: float, y: float, text: str, anchor: str = "start", colour: str = "") -> str:
    """Return a text. `anchor` says which part of the text is at x: start, middle or end."""
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
