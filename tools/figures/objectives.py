"""What each objective makes of a text: the examples of ``zoo examples``, drawn."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.figures.drawing import Canvas, Colour, token_width
from zoo.inspection.examples import ShownDocument, ShownExample, show_examples

# a tokenizer of whole words: what an objective does is easier to see than in pieces of words
TEXT = """\
The river rose in the night. It took the old bridge with it.

A ship sailed past the island at noon. Nobody on board saw the light.

She opened the letter and read it twice. Then she put it in the fire.

The cat slept under the table. The dog watched the door.

He walked to the harbour in the rain. The boats were gone.
"""
SPECIAL = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>", "bos": "<s>", "cls": "[CLS]"}
SPECIAL |= {"sep": "[SEP]", "mask": "[MASK]"}
SENTINELS = [f"<extra_id_{number}>" for number in range(10)]
PAIRS = {"next-sentence": ("next", "random"), "sentence-order": ("in order", "swapped")}


Column = tuple[tuple[str, Colour], ...]  # tokens below each other


class Panel(NamedTuple):
    """An objective, and how its example is made."""

    title: str
    family: str
    objective: str
    length: int  # tokens of a row
    explanation: str
    seed: int = 0
    options: Mapping[str, float] = {}  # of the objective


SPANS = {"noise_density": 0.3, "mean_span_length": 2.0}
PAIR = "masked words, and whether the "
PANELS = (
    Panel("masked-lm", "bert", "masked-lm", 14, "predict the masked words", 3),
    Panel("next-sentence", "bert", "masked-lm+next-sentence", 15, f"{PAIR}second text follows"),
    Panel("sentence-order", "albert", "masked-lm+sentence-order", 14, f"{PAIR}texts are in order"),
    Panel(
        "replaced-token-detection",
        "electra",
        "replaced-token-detection",
        13,
        "a generator fills the gaps; find the words that it replaced",
    ),
    Panel("span-corruption", "t5", "span-corruption", 11, "write the missing spans", 0, SPANS),
    Panel("causal-lm", "gpt", "causal-lm", 12, "predict the next word"),
    Panel("bidirectional-lm", "elmo", "bidirectional-lm", 11, "predict the words on both sides"),
)
LEFT = 104
ROW = 26


def tokenizer(family: str) -> Any:
    """Return a tokenizer of whole words, with the special tokens and the template of a family."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.tokenizers.info import TokenizerInfo

    words = [*SPECIAL.values(), *SENTINELS, *sorted(set(re.findall(r"\w+|\.", TEXT.lower())))]
    made = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    made.normalizer = Lowercase()
    made.add_special_tokens([*SPECIAL.values(), *SENTINELS])
    single, pair = {
        "t5": ("$A </s>", None),
        "gpt": ("$A", None),
    }.get(family, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))
    special = [(token, words.index(token)) for token in ("[CLS]", "[SEP]", "</s>")]
    made.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=special)
    return ExistingTokenizer(made.to_str().encode(), TokenizerInfo(special=SPECIAL))


@contextmanager
def home() -> Iterator[Path]:
    """Keep corpora in a directory that is removed."""
    before = os.environ.get("ZOO_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZOO_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ["ZOO_HOME"]
            if before is not None:
                os.environ["ZOO_HOME"] = before


def example(folder: Path, panel: Panel) -> ShownExample:
    """Return the first example that an objective makes of the text."""
    from zoo.data.cache import cached_corpus
    from zoo.training.config.schema import pretrain_config
    from zoo.training.setup import pretrain_setup

    text = folder / "text.txt"
    text.write_text(TEXT, "utf-8")
    data: dict[str, Any] = {"paths": [str(text)], "tokenizer": "train"}
    if panel.family != "elmo":  # its words are read by their characters
        corpus = cached_corpus((text,), tokenizer(panel.family), workers=1)
        data = {"paths": [str(corpus.path)]}
    settings = {
        "objective": panel.objective,
        "seq_len": panel.length,
        "global_batch_tokens": panel.length,
        "seq_len_warmup": None,
        "data": data,
        "seed": panel.seed,
        "objective_args": dict(panel.options),
    }
    setup = pretrain_setup(
        pretrain_config({"family": panel.family}, settings, offline=True), offline=True
    )
    (shown,) = show_examples(setup, 1)
    return shown


def draw() -> str:
    """Return the figure."""
    canvas = Canvas()
    y = 28.0
    labels = []
    with home() as folder:
        for panel in PANELS:
            canvas.text(16, y, panel.title, "title")
            canvas.text(LEFT + 110, y, panel.explanation, "muted")
            shown = example(folder, panel)
            y = _panel(canvas, shown, PAIRS.get(panel.title, ()), y + 12) + 34
            labels.append(f"{panel.title}: {panel.explanation}")
    return canvas.svg(y - 18, f"An example of each objective. {'; '.join(labels)}")


def _panel(canvas: Canvas, shown: ShownExample, names: tuple[str, ...], y: float) -> float:
    """Draw an example, and return where it ends; ``names`` are those of the labels of pairs."""
    if not shown.documents:  # two networks that read in two directions
        for name in ("forward", "backward"):
            columns = _predicting(shown.other[name], shown.other[f"{name}_targets"])
            y = _columns(canvas, (name, "predicts"), columns, y)
        return y
    document, *rest = shown.documents
    if rest and rest[0].input != document.input:
        y = _spans(canvas, "input", document.tokens, "plain", y)
        return _spans(canvas, "target", _predicted(rest[0]), "green", y)
    if len(document.labels) > len(document.tokens) / 2:
        columns = _predicting(document.tokens, _predicted(document))
        return _columns(canvas, ("input", "predicts"), columns, y)
    if document.replaced:
        return _columns(canvas, ("masked", "filled", "replaced?"), _detected(document), y)
    y = _columns(canvas, ("input", "predicts"), _masked(document), y)
    if document.pair_label is not None:
        canvas.text(16, y + 15, "label", "muted")
        canvas.token(LEFT, y, names[document.pair_label], "green")
        y += ROW
    return y


def _predicting(tokens: list[str], words: list[str]) -> list[Column]:
    """Return tokens, and below each what is predicted."""
    return [((token, "plain"), (word, "green")) for token, word in zip(tokens, words, strict=True)]


def _spans(canvas: Canvas, name: str, words: list[str], colour: Colour, y: float) -> float:
    """Draw a text with sentinels, and return where it ends."""
    canvas.text(16, y + 15, name, "muted")
    x: float = LEFT
    for word in words:
        x = canvas.token(x, y, word, "amber" if word in SENTINELS else colour)
    return y + ROW


def _predicted(document: ShownDocument) -> list[str]:
    return ["/".join(document.labels[place]) for place in sorted(document.labels)]


def _masked(document: ShownDocument) -> list[Column]:
    """Return tokens, and below those that were changed, what is predicted."""
    second = document.tokens.index("[SEP]")  # what follows is the second text of a pair
    columns: list[Column] = []
    for place, token in enumerate(document.tokens):
        plain: Colour = "plain" if document.pair_label is None or place <= second else "teal"
        label = document.labels.get(place, [""])[0]
        columns.append(((token, "amber"), (label, "green")) if label else ((token, plain),))
    return columns


def _detected(document: ShownDocument) -> list[Column]:
    """Return tokens with masks, what a generator writes there, and whether each was replaced."""
    columns: list[Column] = []
    for place, token in enumerate(document.tokens):
        written = document.replaced.get(place, token)
        changed = written != document.labels.get(place, [token])[0]
        colour: Colour = "amber" if place in document.labels else "plain"
        columns.append(((token, colour), (written, colour), ("yes" if changed else "no", "green")))
    return columns


def _columns(canvas: Canvas, names: tuple[str, ...], columns: list[Column], y: float) -> float:
    """Draw rows of tokens whose columns are aligned, and return where they end."""
    for number, name in enumerate(names):
        canvas.text(16, y + ROW * number + 15, name, "muted")
    x: float = LEFT
    for column in columns:
        width = max(token_width(token) for token, _ in column)
        for number, (token, colour) in enumerate(column):
            if token:
                canvas.token(x, y + ROW * number, token, colour, width)
        x += width + 4
    return y + ROW * len(names)
