"""Files of ``zoo probe -o FILE``: a page or a picture."""

from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.probing.report import Probing, draw, render

PAGES = (".html", ".htm")
PICTURES = (".svg", ".png")


def check_output(path: Path) -> None:
    """Check the name of a file before anything is computed.

    Raises:
        UsageError: it has another format, or the package that writes PNG is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in (*PAGES, *PICTURES):
        raise UsageError(
            f"{path}: probing is written as a page or a picture",
            "end the name in .html, .svg or .png",
        )
    if suffix == ".png":
        from zoo.report.png import require_png

        require_png()


def write_output(probing: Probing, path: Path) -> None:
    """Write a page or a picture, by the ending of the file's name."""
    suffix = path.suffix.lower()
    if suffix in PAGES:
        content = render(probing).encode()
    else:
        figure = draw(probing)
        content = figure.encode()
        if suffix == ".png":
            from zoo.report.png import rasterize

            content = rasterize(figure)
    with writing(path):
        atomic_write(path, content)
