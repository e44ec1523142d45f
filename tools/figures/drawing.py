"""SVG by hand: boxes, arrows and tokens, in the colours of a light or a dark page.

A figure has a background of its own, because a page may be dark where the system is light.
"""

from html import escape
from typing import Literal

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small, .muted { font-size: 11px } .muted { fill: #59636e }
.title { font-weight: 600; font-size: 14px } .strong { font-weight: 600 }
.mono { font-family: ui-monospace, monospace; font-size: 12px }
.end { text-anchor: end } .middle { text-anchor: middle }
.page { fill: #ffffff } .plain { fill: #f6f8fa; stroke: #d1d9e0 }
.line { stroke: #818b98; fill: none } .head { fill: #818b98 } .dashed { stroke-dasharray: 4 3 }
.grid { stroke: #d1d9e0 } .one { stroke: #59636e }
.blue { fill: #dbeafe; stroke: #2563eb } .green { fill: #dcfce7; stroke: #15803d }
.amber { fill: #fef3c7; stroke: #b45309 } .red { fill: #fee2e2; stroke: #b91c1c }
.violet { fill: #ede9fe; stroke: #6d28d9 } .teal { fill: #cffafe; stroke: #0e7490 }
.bar { fill: #2563eb }
.line.blue { stroke: #2563eb } .line.green { stroke: #15803d } .line.amber { stroke: #b45309 }
.line.red { stroke: #b91c1c } .line.violet { stroke: #6d28d9 }
line, path.line { fill: none } .thick { stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .muted { fill: #9198a1 } .page { fill: #0d1117 }
  .plain { fill: #151b23; stroke: #3d444d } .line { stroke: #818b98 } .head { fill: #818b98 }
  .grid { stroke: #3d444d } .one { stroke: #9198a1 }
  .blue { fill: #12305e; stroke: #60a5fa } .green { fill: #0f3d24; stroke: #4ade80 }
  .amber { fill: #4a3208; stroke: #fbbf24 } .red { fill: #4c1518; stroke: #f87171 }
  .violet { fill: #33205f; stroke: #a78bfa } .teal { fill: #0b3b45; stroke: #22d3ee }
  .bar { fill: #60a5fa }
  .line.blue { stroke: #60a5fa } .line.green { stroke: #4ade80 } .line.amber { stroke: #fbbf24 }
  .line.red { stroke: #f87171 } .line.violet { stroke: #a78bfa }
}
"""
WIDTH = 760
CHARACTER = 7.3  # width of a character of a token
Colour = Literal["plain", "blue", "green", "amber", "red", "violet", "teal"]


class Canvas:
    """A figure, from the top left corner."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        """Write a line of text, with its baseline at ``y``."""
        self.parts.append(f'<text{_class(style)} x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str = "plain",
        radius: int = 6,
    ) -> None:
        """Draw a rectangle with round corners."""
        self.parts.append(
            f'<rect class="{colour}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{radius}"/>'
        )

    def line(self, *points: tuple[float, float], style: str = "", arrow: bool = False) -> None:
        """Draw a line through points, with a head at its end if it is an arrow."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="{f"line {style}".strip()}" d="M{path}"/>')
        if arrow:
            (x0, y0), (x, y) = points[-2:]
            length = max(abs(x - x0), abs(y - y0))
            # along the last part of the line
            a = 6 * (x - x0) / length
            b = 6 * (y - y0) / length
            corners = ((x, y), (x - a - b / 2, y - b + a / 2), (x - a + b / 2, y - b - a / 2))
            spelled = " ".join(f"{across:g},{down:g}" for across, down in corners)
            self.parts.append(f'<polygon class="head" points="{spelled}"/>')

    def token(self, x: float, y: float, text: str, colour: Colour, width: float = 0) -> float:
        """Draw a token, at least ``width`` wide, and return where the next one begins."""
        width = max(width, token_width(text))
        if x + width > WIDTH:
            raise ValueError(f"{text} does not fit")
        self.box(x, y, width, 22, colour, 4)
        self.text(x + width / 2, y + 15.5, text, "mono middle")
        return x + width + 4

    def svg(self, height: float, label: str) -> str:
        """Return the figure as a file; ``label`` describes it to people who cannot see it."""
        return svg("".join(self.parts), height, label)


def svg(parts: str, height: float, label: str) -> str:
    """Return a file with a background and the style sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(label)}"><style>{STYLE}</style>'
        f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="8"/>{parts}</svg>\n'
    )


def token_width(text: str) -> float:
    """Return the width of a token."""
    return len(text) * CHARACTER + 10


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""
