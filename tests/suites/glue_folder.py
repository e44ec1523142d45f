"""A small folder with the files of GLUE's archive: names, columns and quirks as published."""

import random
from pathlib import Path
from typing import NamedTuple

LETTERS = "abcdefghij"
ENTAILMENT = ("entailment", "not_entailment")


class Layout(NamedTuple):
    """Columns of a task's files; ``{0}`` and ``{1}`` stand for texts, ``{label}`` for the label."""

    folder: str
    columns: dict[str, str]  # Column of files with labels -> template of its cells.
    labels: tuple[str, ...]
    test_columns: dict[str, str]
    has_header: bool = True
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)


PAIR = {"index": "{number}", "sentence1": "{0}", "sentence2": "{1}"}
QUESTION = {"index": "{number}", "question": "{0}", "sentence": "{1}"}
DUPLICATE = {"id": "{number}", "qid1": "7", "qid2": "8", "question1": "{0}", "question2": "{1}"}
MRPC = {"#1 ID": "7", "#2 ID": "8", "#1 String": "{0}", "#2 String": "{1}"}
MNLI = {"index": "{number}", "genre": "fiction", "sentence1": "{0}", "sentence2": "{1}"}
STSB = {"index": "{number}", "genre": "news", "sentence1": "{0}", "sentence2": "{1}"}
LAYOUTS = {
    "cola": Layout(
        "CoLA",
        {"source": "gj04", "label": "{label}", "star": "*", "sentence": "{0}"},
        ("0", "1"),
        {"index": "{number}", "sentence": "{0}"},
        has_header=False,
    ),
    "sst2": Layout(
        "SST-2",
        {"sentence": "{0}", "label": "{label}"},
        ("0", "1"),
        {"index": "{number}", "sentence": "{0}"},
    ),
    "mrpc": Layout(
        "MRPC", {"Quality": "{label}", **MRPC}, ("0", "1"), {"index": "{number}", **MRPC}
    ),
    "stsb": Layout("STS-B", {**STSB, "score": "{score}"}, (), STSB),
    "qqp": Layout(
        "QQP",
        {**DUPLICATE, "is_duplicate": "{label}"},
        ("0", "1"),
        {"id": "{number}", "question1": "{0}", "question2": "{1}"},
    ),
    "mnli": Layout(
        "MNLI",
        {**MNLI, "label1": "neutral", "gold_label": "{label}"},
        ("contradiction", "entailment", "neutral"),
        MNLI,
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
    ),
    "qnli": Layout("QNLI", {**QUESTION, "label": "{label}"}, ENTAILMENT, QUESTION),
    "rte": Layout("RTE", {**PAIR, "label": "{label}"}, ENTAILMENT, PAIR),
    "wnli": Layout("WNLI", {**PAIR, "label": "{label}"}, ("0", "1"), PAIR),
}
Row = dict[str, str]


def make_glue(folder: Path, count: int = 10) -> Path:
    """Write the folder; return it."""
    for name, layout in LAYOUTS.items():
        (folder / layout.folder).mkdir(parents=True)
        for split in ("train", *layout.dev):
            rows = make_rows(name, split, count)
            write(folder / layout.folder / f"{split}.tsv", rows, header=layout.has_header)
        for split in layout.test:
            rows = make_rows(name, split, count)
            write(folder / layout.folder / f"{split}.tsv", rows, header=True)
    (folder / "diagnostic").mkdir()
    rows = [{**row, "Domain": "News"} for row in make_diagnostics(count)]
    write(folder / "diagnostic" / "diagnostic-full.tsv", rows, header=True)
    columns = ("index", "sentence1", "sentence2")
    test_rows = [
        dict(zip(columns, (str(number), row["Premise"], row["Hypothesis"]), strict=True))
        for number, row in enumerate(rows)
    ]
    write(folder / "diagnostic" / "diagnostic.tsv", test_rows, header=True)
    return folder


def make_diagnostics(count: int) -> list[Row]:
    """Return the rows of the diagnostic set with labels."""
    rows = []
    for row in make_rows("mnli", "diagnostic", count):
        names = {"sentence1": "Premise", "sentence2": "Hypothesis", "gold_label": "Label"}
        rows.append({new: row[name] for name, new in names.items()})
    return rows


def make_rows(name: str, split: str, count: int) -> list[Row]:
    """Return the rows of a file, the same in every call."""
    rng = random.Random(f"{name} {split}")
    layout = LAYOUTS[name]
    columns = layout.test_columns if split in layout.test else layout.columns
    rows = []
    for number in range(count):
        texts = [" ".join(rng.choices(LETTERS, k=rng.randint(1, 9))) for _ in range(2)]
        if number == 0:
            texts[0] += ' "a'  # A quote that quotes nothing.
        values = {
            "number": number,
            "label": rng.choice(layout.labels) if layout.labels else "",
            "score": f"{rng.uniform(0, 5):.3f}",
        }
        rows.append({name: cell.format(*texts, **values) for name, cell in columns.items()})
    return rows


def write(path: Path, rows: list[Row], *, header: bool) -> None:
    """Write cells with tabs between them and no quotes."""
    lines = ["\t".join(rows[0])] if header else []
    lines += ["\t".join(row.values()) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
