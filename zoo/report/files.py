"""Pages and pictures as files, whose names say which of them they are."""

from collections.abc import Callable, Sequence
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing

PAGES = (".html", ".htm")
PNG = ".png"
PICTURES = (".svg", PNG)


def check_report_file(path: Path, subject: str, more_formats: Sequence[str] = ()) -> None:
    """Check the name of a file before anything is computed.

    Args:
        path: the file.
        subject: what is written, for the message, such as ``a look``.
        more_formats: endings of other files that are written, such as ``.json``.

    Raises:
        UsageError: it has another format, or the package that writes PNG is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in (*PAGES, *PICTURES, *more_formats):
        endings = [".html", *PICTURES, *more_formats]
        raise UsageError(
            f"{path}: {subject} is written as a page or a picture"
            f"{', or as numbers' if more_formats else ''}",
            f"end the name in {', '.join(endings[:-1])} or {endings[-1]}",
        )
    if suffix == PNG:
        from zoo.report.png import require_png

        require_png()


def write_report_file(path: Path, page: Callable[[], str], picture: Callable[[], str]) -> None:
    """Write a page or a picture, by the ending of the file's name.

    Args:
        path: the file.
        page: returns the page, as HTML.
        picture: returns the picture, as SVG.
    """
    suffix = path.suffix.lower()
    if suffix in PAGES:
        content = page().encode()
    elif suffix == PNG:
        from zoo.report.png import rasterize

        content = rasterize(picture())
    else:
        content = picture().encode()
    with writing(path):
        atomic_write(path, content)
