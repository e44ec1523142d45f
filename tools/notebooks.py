"""The notebooks of ``examples/notebooks``: they are run, and their outputs are written.

    python -m tools.notebooks [NAME...]            # runs them, and writes their outputs
    python -m tools.notebooks --check [NAME...]    # compares the outputs

They run in an empty directory, on one thread. What is written to standard error is left out. A
page of more than ``MAX_HTML`` characters, such as the one of a look, is a file in ``docs/figures``,
which the site shows, and not in the notebook. The CPU seconds of each notebook are printed.
"""

import argparse
import html
import os
import re
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
FIGURES = ROOT / "docs" / "figures"
FRAME = re.compile(r'<iframe srcdoc="([^"]*)"')  # A page in a cell, see frame.html.
PAGE = "page"  # Key of an output's metadata: the file of its page.
MAX_HTML = 20_000
SECONDS = 900  # time limit of a cell
PLAIN = "text/plain"
HTML = "text/html"


def notebooks(names: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks of these names, by default all."""
    return [path for path in sorted(FOLDER.glob("*.ipynb")) if not names or path.stem in names]


def read(path: Path) -> Any:
    """Return a notebook with its outputs."""
    return nbformat.read(path, as_version=4)


def execute(path: Path) -> tuple[Any, dict[str, str]]:
    """Return a notebook with the outputs that its cells have now, and its pages by file name."""
    from nbclient import NotebookClient

    notebook = read(path)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    pages: dict[str, str] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if is_shown(output)]
            for output in cell.outputs:
                page = take_page(output)
                if page is not None:
                    name = f"{path.stem}-{len(pages) + 1}.html"
                    pages[name] = page
                    output.metadata[PAGE] = name
    return notebook, pages


def is_shown(output: Any) -> bool:
    """Return whether an output is neither standard error nor a bar of progress."""
    if output.output_type == "stream":
        return bool(output.name == "stdout")
    return bool(output.output_type != "display_data")


def take_page(output: Any) -> str | None:
    """Remove the page from an output with long HTML, and return it; ``None`` without one."""
    content = output.get("data", {}).get(HTML, "")
    if len(content) <= MAX_HTML:
        return None
    del output.data[HTML]
    frame = FRAME.search(content)
    return content if frame is None else html.unescape(frame[1])


def cpu_seconds() -> float:
    """Return the CPU seconds of the processes that ended, which ran the notebooks."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def texts(notebook: Any) -> Iterator[str]:
    """Yield the text of each output."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield output.text if output.output_type == "stream" else output.data[PLAIN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true", help="compare the outputs")
    options = parser.parse_args()
    changed_names = []
    for path in notebooks(options.names):
        start = cpu_seconds()
        notebook, pages = execute(path)
        print(f"{path.stem}: {cpu_seconds() - start:.0f} s of CPU")
        if not options.check:
            nbformat.write(notebook, path)
            for name, page in pages.items():
                (FIGURES / name).write_text(page, "utf-8")
        elif list(texts(notebook)) != list(texts(read(path))):
            changed_names.append(path.stem)
    if changed_names:
        sys.exit(f"outputs changed: {', '.join(changed_names)}; run `python -m tools.notebooks`")


if __name__ == "__main__":
    main()
