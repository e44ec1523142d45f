"""Zero-shot classification by natural language inference."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.processing.records import TextExample, validate_text
from zoo.inference.task import EncodedExample, EncodedTexts, texts_of
from zoo.inference.windowed import WindowedTask
from zoo.overrides import override
from zoo.tasks.zero_shot import TEMPLATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text

SLOT = "{}"  # the place of the label in a template
LISTED_MODELS = "`zoo models nli` lists some"


class ZeroShot(WindowedTask):
    """Classification of texts by labels in words, by a model of natural language inference.

    The method is that of Yin et al. 2019 (arXiv:1909.00161), as in transformers' zero-shot pipeline
    (``pipelines/zero_shot_classification.py``): a text entails a hypothesis such as "This example
    is politics." or does not.

    Results have the keys ``labels``, the most probable first, and ``scores``, their probabilities.
    These are the softmax of the entailment logits of all labels; with ``multi_label`` or a single
    label, of entailment against contradiction for each. The logits of a text that is read in
    windows are their mean for each label, or those of the label's best window (``max``).
    """

    name: ClassVar[str] = "zero-shot"
    heads: ClassVar[tuple[str, ...]] = ("sequence-classification",)
    output_keys: ClassVar[tuple[str, ...]] = ("labels", "scores")
    chunk_size: int = 256

    @classmethod
    @override
    def require_head(cls, checkpoint: "Checkpoint") -> None:
        if checkpoint.head_name not in cls.heads:
            raise UsageError(
                f"{checkpoint.name} has the head {checkpoint.head_name}, and {cls.name} needs a "
                "model of natural language inference",
                LISTED_MODELS,
            )

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        """Name the options as the pipeline does."""
        names = {"label": "candidate_labels", "template": "hypothesis_template"}
        options = {names.get(name, name): value for name, value in options.items()}
        # The labels are checked here, because the weights are slow to load.
        _hypotheses(options["candidate_labels"], options["hypothesis_template"])
        return records, options

    def __init__(
        self,
        *args: Any,
        candidate_labels: str | Sequence[str] = (),
        hypothesis_template: str = TEMPLATE,
        multi_label: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        label_hypotheses = _hypotheses(candidate_labels, hypothesis_template)
        self.labels = list(label_hypotheses)
        self.hypotheses = list(label_hypotheses.values())
        self.entailment = entailment_id(self.checkpoint)
        self.contradiction = None
        if multi_label or len(self.labels) == 1:
            self.contradiction = contradiction_id(self.checkpoint, self.entailment)
        if self.windows is not None:
            # Each window has the whole hypothesis, which is the second text.
            self.windows = replace(self.windows, context_first=True)

    @property
    @override
    def is_thread_safe(self) -> bool:
        return True

    @override
    def tokenize(self, records: list[TextExample], first_row: int) -> list[EncodedExample]:
        """Return the tokens of each text with all hypotheses."""
        pairs: list[Text] = []
        for record in records:
            for hypothesis in self.hypotheses:
                pairs.append((record.text, hypothesis))
        encoded = self.encode(pairs)
        items = []
        for number, record in enumerate(records):
            start = number * len(self.hypotheses)
            record_texts = EncodedTexts(encoded[start : start + len(self.hypotheses)])
            items.append(EncodedExample(record, record_texts, first_row + number))
        return items

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        max_tokens = self.max_tokens if self.windows is None else None
        return self.tokenizer.encode(
            texts, max_tokens=max_tokens, offsets=False, truncation="only_first"
        )

    @override
    def truncated(self, item: EncodedExample) -> int:
        """Return the number of tokens of a text that were cut for the longest hypothesis."""
        return max(self.truncated_tokens(text) for text in texts_of(item.encoded))

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        return [{"logits": row} for row in self.output("logits", items, batch)]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the labels by probability, of equal ones the first."""
        import numpy as np

        row_logits = iter([row["logits"] for row in rows])
        label_logits = []
        for text in texts_of(item.encoded):
            windows = [next(row_logits) for _ in self.split_text(text)]
            label_logits.append(self.pool_logits(windows))
        logits = np.array(label_logits)  # (labels, classes)
        if self.contradiction is None:
            scores = softmax(logits[:, self.entailment])
        else:
            scores = softmax(logits[:, [self.contradiction, self.entailment]])[:, 1]
        order = np.argsort(-scores, kind="stable")
        return {
            "labels": [self.labels[number] for number in order],
            "scores": scores[order].tolist(),
        }

    @override
    def pool_logits(
        self, rows: "Sequence[NDArray[np.floating[Any]]]"
    ) -> "NDArray[np.floating[Any]]":
        if len(rows) == 1 or self.window_pooling != "max":
            return super().pool_logits(rows)

        def rank(logits: "NDArray[np.floating[Any]]") -> float:
            if self.contradiction is None:
                return float(logits[self.entailment])
            return float(logits[self.entailment] - logits[self.contradiction])

        return max(rows, key=rank)


def entailment_id(checkpoint: "Checkpoint") -> int:
    """Return the index of the label for entailment."""
    names = checkpoint.config.labels
    index = _find_prefix(names, "entail")
    if index is None:
        raise UsageError(
            f"{checkpoint.name} has the labels {', '.join(names)}, and none of them is entailment",
            f"use a model of natural language inference ({LISTED_MODELS}), or name its labels in "
            "the config.json that it is converted from",
        )
    return index


def contradiction_id(checkpoint: "Checkpoint", entailment: int) -> int:
    """Return the index of the label for contradiction; by default the first label, or the last."""
    names = checkpoint.config.labels
    if len(names) < 2:
        raise UsageError(
            f"{checkpoint.name} has the only label {names[0]}, and nothing to compare it with",
            "give several labels without --multi-label",
        )
    index = _find_prefix(names, "contradict")
    if index is not None:
        return index
    return len(names) - 1 if entailment == 0 else 0


def _find_prefix(names: Sequence[str], prefix: str) -> int | None:
    """Return the index of the first name with a prefix, in any letter case."""
    for index, name in enumerate(names):
        if name.lower().startswith(prefix):
            return index
    return None


def _hypotheses(candidate_labels: str | Sequence[str], template: str) -> dict[str, str]:
    """Return label -> hypothesis; in one string, labels have commas between them."""
    if isinstance(candidate_labels, str):
        labels = [part.strip() for part in candidate_labels.split(",")]
    else:
        labels = list(candidate_labels)
    if not labels:
        raise UsageError("there is no label to choose", "name each with --label")
    if "" in labels:
        raise UsageError("a label is empty", "name each with --label")
    for number, label in enumerate(labels, 1):
        validate_text(label, f"label {number}")
    for number, label in enumerate(labels):
        if label in labels[:number]:
            raise UsageError(f"the label {label} is given twice", "name each label once")
    if SLOT not in template:
        raise UsageError(
            f"the template {template!r} has no place for the label",
            f"write {SLOT} there, as in {TEMPLATE!r}",
        )
    return {label: template.replace(SLOT, label) for label in labels}
