"""Self-contained HTML pages: style sheet, sections, key figures and tables."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --card: #ffffff; --line: #e7e5e1; --text: #1f2328; --quiet: #6b6f76;
  --train: #7f9cc0; --validation: #c2502e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181b; --card: #1d2024; --line: #31353b; --text: #e4e6e9; --quiet: #979ca4;
    --train: #5f83b3; --validation: #ef8a62;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1060px; padding: 48px 24px 72px; background: var(--page);
  color: var(--text); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
h1, p.lead, dd { overflow-wrap: anywhere; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -.02em; margin: 0; }
h2 { font-size: 17px; margin: 56px 0 16px; letter-spacing: -.01em; }
p.lead { color: var(--quiet); margin: 6px 0 0; }
dl {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(190px, 40%), 1fr));
  gap: 28px 24px; margin: 40px 0 0;
}
dt { color: var(--quiet); font-size: 13px; }
dd { margin: 2px 0 0; font-size: 21px; line-height: 1.25; }
dd small { display: block; font-size: 13px; color: var(--quiet); margin-top: 3px; }
.charts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(380px, 100%), 1fr)); gap: 20px;
}
figure {
  margin: 0; padding: 16px 16px 10px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; max-width: 620px; break-inside: avoid;
}
figcaption { font-weight: 600; display: flex; flex-wrap: wrap; gap: 0 16px; margin-bottom: 8px; }
.legend { margin-left: auto; font-weight: 400; font-size: 13px; color: var(--quiet); }
.legend span { margin-left: 14px; white-space: nowrap; }
.legend span::before {
  content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: 3px; background: var(--train);
}
.legend .validation::before { background: var(--validation); }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--quiet); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--quiet); }
polyline { fill: none; stroke: var(--train); stroke-width: 1.4; stroke-linejoin: round; }
polyline.dense { stroke-width: 1; }
polyline.validation { stroke: var(--validation); stroke-width: 2; }
circle { fill: var(--train); } g.validation circle { fill: var(--validation); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: right; padding: 6px 0 6px 28px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: 0; }
th { color: var(--quiet); font-weight: 500; white-space: nowrap; }
tr.best td { color: var(--validation); font-weight: 600; }
pre {
  margin: 0; padding: 16px 18px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; font: 13px/1.55 ui-monospace, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
.note { color: var(--quiet); font-size: 13px; margin: 12px 0; }
@media (max-width: 480px) {
  body { padding: 28px 14px 48px; }
  h1 { font-size: 25px; } h2 { margin-top: 40px; }
  figure { padding: 12px 10px 8px; } svg text { font-size: 14px; }
}
@media print {
  :root {
    --page: #fff; --card: #fff; --line: #ddd; --text: #000; --quiet: #555;
    --train: #7f9cc0; --validation: #c2502e;
  }
  body { max-width: none; padding: 0; font-size: 12px; print-color-adjust: exact; }
  h1 { font-size: 22px; } dl { margin-top: 24px; gap: 14px 20px; } dd { font-size: 16px; }
  h2 { margin-top: 28px; } pre { font-size: 11px; }
  td, th { padding-top: 3px; padding-bottom: 3px; }
  .charts { grid-template-columns: 1fr 1fr; }
  h2, .note { break-after: avoid; } tr { break-inside: avoid; }
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a page.

    Args:
        title: title, as text.
        parts: sections, as HTML.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section with a heading; an empty string if all parts are empty."""
    content = "\n".join(part for part in parts if part)
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def stat_list(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a list of key figures.

    Args:
        rows: name, value and note, as text; rows without a value are omitted.
    """
    shown = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}"
        + (f"<small>{escape(note)}</small>" if note else "")
        + "</dd></div>"
        for name, value, note in rows
        if value
    ]
    return "\n".join(("<dl>", *shown, "</dl>")) if shown else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], best: int | None = None) -> str:
    """Return a table of numbers.

    Args:
        header: names of the columns, as text.
        rows: cells, as text.
        best: index of the row to highlight.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = [
        ('<tr class="best">' if number == best else "<tr>")
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for number, row in enumerate(rows)
    ]
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


def text(content: str) -> str:
    """Return preformatted text in a box; an empty string for no text."""
    return f"<pre>{escape(content.strip())}</pre>" if content.strip() else ""


def note(content: str) -> str:
    """Return a note in small print."""
    return f'<p class="note">{escape(content)}</p>'
