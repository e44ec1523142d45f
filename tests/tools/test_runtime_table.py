"""The page of families, heads and runtimes is what the targets declare."""

import re

from tools import runtime_table
from zoo.plugins import iter_families


def test_the_page_is_up_to_date() -> None:
    page = runtime_table.PAGE.read_text("utf-8")
    reasons: list[str] = []
    wanted = list(runtime_table.rows(list(iter_families()), reasons))
    wanted.append(runtime_table.trained_row())
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if "/" in line[:40]]
    written = {line[0]: line[1:] for line in lines if len(line) == len(wanted[0])}
    # a difference that was measured takes the place of "yes"
    found = {
        name: [re.sub(r"^\d\.\de[-+]\d\d$|^fails$", runtime_table.YES, cell) for cell in cells]
        for name, cells in written.items()
    }
    assert found == {row[0]: list(row[1:]) for row in wanted}
    assert re.findall(r"^\* ([a-z]+): (.*)$", page, re.MULTILINE) == [
        (runtime_table.letter(number), reason) for number, reason in enumerate(reasons)
    ]


def test_rows_that_are_not_measured_keep_their_numbers() -> None:
    family = [family for family in iter_families() if family.name == "bloom"]
    plain = list(runtime_table.rows(family, []))
    numbers = {}
    for name, *cells in plain:
        numbers[name] = ["3.4e-07" if cell == runtime_table.YES else "yes" for cell in cells]
    kept = list(runtime_table.rows(family, [], numbers))
    for row, earlier in zip(kept, plain, strict=True):
        # What a target does not hold any more has its reason.
        assert [*row] == [cell if cell != "yes" else "3.4e-07" for cell in earlier]
    page = "\n".join(f"| {' | '.join(row)} |" for row in kept)
    assert runtime_table.read_rows(page) == {name: cells for name, *cells in kept}


def test_the_page_has_every_precision() -> None:
    page = runtime_table.PAGE.read_text("utf-8").partition("## Precisions")[2]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert [tuple(row) for row in rows[2:]] == runtime_table.precisions()
