"""Writes what ``zoo look`` shows to a file."""

from pathlib import Path

from zoo.inspection.formats import PICTURES, PictureSettings
from zoo.inspection.inspection import Look
from zoo.inspection.page import render
from zoo.inspection.picture import draw
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing


def write_output(look: Look, path: Path, settings: PictureSettings) -> None:
    """Write a page or a picture, by the ending of the file's name.

    Raises:
        UsageError: the model has no such view, layer or head.
    """
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        figure = draw(look, settings)
        content = figure.encode()
        if suffix == ".png":
            from zoo.report.png import rasterize

            content = rasterize(figure)
    else:
        content = render(look).encode()
    with writing(path):
        atomic_write(path, content)
