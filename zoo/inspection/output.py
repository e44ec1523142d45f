"""Writes what ``zoo look`` shows to a file."""

from pathlib import Path

from zoo.inspection.formats import PictureSettings
from zoo.inspection.inspection import Look
from zoo.inspection.page import render
from zoo.inspection.picture import draw
from zoo.report.files import write_report_file


def write_output(look: Look, path: Path, settings: PictureSettings) -> None:
    """Write a page or a picture, by the ending of the file's name.

    Raises:
        UsageError: the model has no such view, layer or head.
    """
    write_report_file(path, lambda: render(look), lambda: draw(look, settings))
