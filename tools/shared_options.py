"""Write the tables of docs/command-line.md: the options that several commands share.

``python -m tools.shared_options`` writes the tables between their marks, and ``--check`` compares
them. An option is declared once, in ``SHARED`` of zoo/cli/options.py.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

from zoo.cli import cli
from zoo.cli.options import SHARED

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"


def commands(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield name and command of all commands in a group."""
    context = click.Context(group)
    for child in group.list_commands(context):
        command = group.get_command(context, child)
        if isinstance(command, click.Group):
            yield from commands(command, f"{name}{child} ")
        elif command is not None:
            yield f"{name}{child}", command


def options() -> Iterator[tuple[str, click.Option]]:
    """Yield the options of all commands; those of the tasks of `zoo run` are of `run`."""
    for name, command in commands(cli):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield "run" if name.startswith("run ") else name, parameter


def shared_table() -> list[str]:
    """Return the table of shared options."""
    used: dict[str, list[str]] = defaultdict(list)
    every = list(dict.fromkeys(name for name, _ in options()))
    for name, option in options():
        if option.name in SHARED and name not in used[option.name]:
            used[option.name].append(name)
    rows = []
    for name, (flags, metavar, meaning) in SHARED.items():
        where = ", ".join(f"`{command}`" for command in used[name])
        if len(used[name]) > len(every) - 3:
            where = "every command"
        names_ = ", ".join(f"`{flag}`" for flag in flags)
        rows.append(f"| {names_}{f' `{metavar}`' if metavar else ''} | {meaning} | {where} |")
    return ["| option | meaning | commands |", "|---|---|---|", *rows]


TABLES = {"shared options": shared_table}


def written(text: str) -> str:
    """Return the text of the page with current tables."""
    for name, table in TABLES.items():
        body = "\n".join(["", "", *table(), "", ""])
        begin, _, rest = text.partition(f"<!-- {name} -->")
        end = rest.partition("<!-- end -->")
        assert end[1], f"the page has no marks of {name}"
        text = f"{begin}<!-- {name} -->{body}<!-- end -->{end[2]}"
    return text


def main() -> None:
    """Write or check the page."""
    text = PAGE.read_text("utf-8")
    if "--check" in sys.argv[1:]:
        if written(text) != text:
            sys.exit(f"{PAGE} is out of date: run `python -m tools.shared_options`")
        return
    PAGE.write_text(written(text), "utf-8")


if __name__ == "__main__":
    main()
