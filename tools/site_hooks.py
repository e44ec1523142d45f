"""Hooks of MkDocs: the pages that are generated, and links that lead out of ``docs``.

``index.md`` is the README, ``commands.md`` the help of every command, ``python.md`` the
signatures and docstrings of the public Python names, and ``notebooks/`` has the notebooks of
``examples/notebooks`` with their outputs. They exist in the built site only.
"""

import inspect
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"index.md": index(), "commands.md": command_pages(), "python.md": python_page()}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook_page(path)
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files outside of ``docs`` by their text; the site does not have them.

    It has the notebooks, as pages.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target.startswith("../examples/notebooks/"):
            page_path = f"notebooks/{posixpath.basename(target).removesuffix('.ipynb')}.md"
            return f"[{link[1]}]({posixpath.relpath(page_path, folder or '.')})"
        return link[1] if target.startswith("..") else link[0]

    return LINK.sub(replace, markdown)


def index() -> str:
    """Return the README with links as of a page in ``docs``."""
    text = (ROOT / "README.md").read_text("utf-8")

    def move(link: re.Match[str]) -> str:
        path = link[2]
        moved = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
        return f"[{link[1]}]({moved}{link[3] or ''})"

    return LINK.sub(move, text).replace("](docs/figures/", "](figures/")


def notebook_page(path: Path) -> str:
    """Return a notebook as a page: its text, its code, and what the code prints or returns."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            # HTML is what the package makes, with all values escaped.
            data = output.get("data", {})
            name = output.get("metadata", {}).get("page")
            if name is not None:
                # A document of its own: its styles and scripts do not mix with the site's.
                parts.append(
                    f'<iframe class="page" src="../../figures/{name}" loading="lazy" '
                    f'title="The page that the cell shows"></iframe>'
                )
                continue
            if "text/html" in data:
                parts.append(f"<div>{''.join(data['text/html'])}</div>")
                continue
            text = "".join(output.get("text") or data["text/plain"]).rstrip()
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def command_pages() -> str:
    """Return the help of every command as one page, with a heading for each."""
    from zoo.cli import cli

    parts = ["# Commands\n\nThe help of every command, as `zoo COMMAND --help` prints it.\n"]
    for context, command in walk(cli, click.Context(cli, info_name="zoo", terminal_width=80)):
        level = min(len(context.command_path.split()), 4)
        help_text = command.get_help(context)
        parts.append(f"{'#' * level} {context.command_path}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


def walk(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Context, click.Command]]:
    """Yield the visible commands below one, each with its context."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is None or child.hidden:
            continue
        inner = click.Context(child, context, info_name=name, terminal_width=80)
        yield inner, child
        yield from walk(child, inner)


def python_page() -> str:
    """Return the names of ``zoo`` and the methods of its models, with their docstrings."""
    import zoo
    from zoo.api import Model

    parts = ["# Python\n\nThe names of `zoo`, and the methods of what `zoo.load` returns.\n"]
    names = [name for name in sorted(zoo.__all__) if not name.startswith("_")]
    parts += [entry(f"zoo.{name}", getattr(zoo, name), 2) for name in names]
    methods = [name for name in vars(Model) if not name.startswith("_")]
    parts += [entry(f"Model.{name}", getattr(Model, name), 3) for name in sorted(methods)]
    return "\n".join(parts)


def entry(name: str, value: Any, level: int) -> str:
    """Return the heading, the signature and the docstring of a name."""
    signature = ""
    if callable(value):
        signature = f"\n```python\n{name.split('.')[-1]}{inspect.signature(value)}\n```\n"
    return f"{'#' * level} {name}\n{signature}\n```text\n{inspect.getdoc(value) or ''}\n```\n"
