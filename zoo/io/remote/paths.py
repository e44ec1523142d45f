"""Paths of files and folders of a store, in the results of functions."""

from pathlib import PosixPath

from zoo.io.urls import parse_url
from zoo.overrides import override


class UrlPath(PosixPath):
    """Path of a file or folder of a store, whose text is its URL.

    Functions of ``zoo`` take it wherever they take a URL. The parts of paths, such as ``/`` and
    ``name``, work; methods that open a file find none on this machine.
    """

    @override
    def __str__(self) -> str:
        text = super().__str__()
        url = parse_url(text)
        return text if url is None else str(url)
