"""Figures as PNG, drawn by resvg (https://github.com/linebender/resvg)."""

from functools import cache

from zoo.errors import UsageError
from zoo.report.figures import MONOSPACE, SANS_SERIF

ZOOM = 2  # Pixels for a unit of a figure's width and height.
_FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def require_png() -> None:
    """Check that PNG can be written."""
    try:
        import resvg_py  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"resvg, which draws PNG, cannot be loaded: {error}",
            "pip install resvg-py, or write .svg",
        ) from None
    if not (_has_font(SANS_SERIF) and _has_font(MONOSPACE)):
        raise UsageError(
            "the fonts for the text of a PNG are not installed",
            "install DejaVu Sans and DejaVu Sans Mono, or write .svg",
        )


def rasterize(figure: str) -> bytes:
    """Return a figure in SVG as PNG, in the colours of a light page."""
    import resvg_py

    return resvg_py.svg_to_bytes(svg_string=figure, zoom=ZOOM)


@cache
def _has_font(families: str) -> bool:
    """Return whether text is visible. Without a font, resvg leaves it out without an error."""
    text = rasterize(_FIGURE.format(f"<text x='2' y='15' style='font-family: {families}'>M</text>"))
    return text != rasterize(_FIGURE.format(""))
