"""HTML pages from the Jinja2 templates in ``zoo/report/templates``."""

import base64
import functools
from typing import TYPE_CHECKING, Any

from zoo.io.page_text import readable_values

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """Return a page as HTML.

    ``page.html`` is the frame that every page extends, ``parts.html`` has the macros that pages
    share, and each other file is a page. A page is one file: styles and scripts are inserted, and
    it has no links.

    Values are escaped like by ``html_text``: control characters by ``_readable``, and the signs of
    HTML by the environment. Values of scripts need ``readable_values``.
    """
    return _environment().get_template(template).render(values)


def image_url(figure: str) -> str:
    """Return an SVG as a data URL, so that its style does not reach the page."""
    return f"data:image/svg+xml;base64,{base64.b64encode(figure.encode()).decode()}"


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("zoo.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _readable(value: Any) -> Any:
    """Return a value without control characters; HTML of this package stays as it is."""
    if hasattr(value, "__html__"):
        return value
    return readable_values(value)
