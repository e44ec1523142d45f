"""The notebooks of ``examples/notebooks``: they are run, and their outputs are written.

    python -m tools.notebooks [NAME...]            # runs them, and writes their outputs
    python -m tools.notebooks --check [NAME...]    # compares the outputs

They run in an empty directory, on one thread. What is written to standard error is left out, as is
HTML of more than ``MAX_HTML`` characters, such as the page of a look.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
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


def execute(path: Path) -> Any:
    """Return a notebook with the outputs that its cells have now."""
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
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(shorten, cell.outputs) if output is not None]
    return notebook


def shorten(output: Any) -> Any:
    """Return an output without long HTML; ``None`` for standard error and progress."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    if output.output_type == "display_data":
        return None  # A bar of progress is all that the notebooks display otherwise.
    if len(output.data.get(HTML, "")) > MAX_HTML:
        del output.data[HTML]
    return output


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
        notebook = execute(path)
        if not options.check:
            nbformat.write(notebook, path)
        elif list(texts(notebook)) != list(texts(read(path))):
            changed_names.append(path.stem)
    if changed_names:
        sys.exit(f"outputs changed: {', '.join(changed_names)}; run `python -m tools.notebooks`")


if __name__ == "__main__":
    main()
