"""Fine-tuning of a masked model with a template and label words."""

# The pattern models of Schick and Schütze 2021 (arXiv:2001.07676, section 3.1 and 3.2): the model
# fills a label's word into the template, and the probabilities of the labels are the softmax of
# their words' logits. On unlabelled texts, the masked-LM loss keeps the model a language model.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from zoo.data.readers.labelled import Columns, Sample, describe_labels, label_name
from zoo.data.readers.problems import RowError
from zoo.errors import UsageError
from zoo.finetuning.class_losses import class_loss
from zoo.finetuning.labelled_texts import Label, LabelledTexts
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, require_tokens
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskInputs,
    TaskLoss,
    TaskModel,
    model_inputs,
)
from zoo.inference.processing.records import TextExample
from zoo.inference.text_results import CLASS_RESULTS
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import cross_entropy_sum, encode_at, predict
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.prompt.fit import PromptFitter
from zoo.tasks.prompt.scoring import WordRow, masked_rows, unknown_word
from zoo.tasks.prompt.template import Prompt, PromptTemplate, resolve_label_words
from zoo.tasks.prompt.unlabelled import read_unlabelled
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.training.state.pretrained import PretrainedInit

MASKED_LM = "masked-lm"  # The loss term of unlabelled texts.
POSITION = "label_position"
WORDS = "word_ids"
TEXT_IDS = "text_ids"
TEXT_MASK = "text_attention_mask"
TEXT_LABELS = "text_labels"
PREDICTED_FRACTION = 0.15  # Fraction of the tokens that are predicted.
# Fraction of these that stay as they are; as many become random tokens.
UNCHANGED_FRACTION = 0.1


class PromptOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of fine-tuning with a template."""

    template: tuple[str, ...] | str = ()  # The template: one text, or file.
    # Words of one token that stand for labels: label -> word, or ``LABEL=WORD,...``.
    label_words: dict[str, str] | str = ""
    # Weight of the masked-LM loss on ``data.unlabelled``; the labels' loss has the rest.
    lm_coef: float = 1e-4

    def __post_init__(self) -> None:
        self.check_fraction("lm_coef", ends=True)

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates as they are given."""
        if isinstance(self.template, str):
            return (self.template,)
        return self.template


def prompt_template(context: TaskContext) -> PromptTemplate:
    """Return the template of a run."""
    (source,) = context.options.templates
    template = PromptTemplate.parse(source)
    template.require_label()
    template.require_no_rationale()
    return template


def label_words(context: TaskContext) -> dict[str, str]:
    """Return label -> its word."""
    return resolve_label_words(context.options.label_words)


class WordLabel(Label):
    """A class that has a word."""

    @override
    def names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        return (label_name(sample.label, sample.location),)

    @override
    def fit(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the labels that have words."""
        return tuple(resolve_label_words(settings.task_args.get("label_words") or ""))

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return nothing: the outputs are tokens."""
        return ()

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        (name,) = self.names(sample, context.settings.data)
        if name not in context.label_indices:
            raise RowError(
                f"{sample.location} has the label {name!r}, which has no word",
                f"label words are for {describe_labels(context.labels, name)}",
            )
        return context.label_indices[name]


class PromptModel(TaskModel):
    """A masked language model with a template."""

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        """Put the contents of a file in place of its name."""
        checkpoint = None
        if init is not None:
            checkpoint = init.checkpoints.get("model")
        if checkpoint is not None and "fill-mask" not in checkpoint.head.tasks:
            raise UsageError(
                f"{checkpoint.name} has the head {checkpoint.head_name}, which predicts no masked "
                "tokens",
                "use a masked language model",
            )
        options = settings.task_args
        templates: Any = options.get("template") or ()
        if isinstance(templates, str):
            templates = (templates,)
        if len(templates) != 1:
            raise UsageError(
                f"{task.name} trains with one template, and there are {len(templates)}",
                "give --template FILE|TEXT once; --task pet trains with several",
            )
        words = resolve_label_words(options.get("label_words") or "")
        source = PromptTemplate.read(str(templates[0])).source
        resolved = {**options, "template": [source], "label_words": words}
        return msgspec.structs.replace(settings, task_args=resolved)

    @override
    def require_valid(self, context: TaskContext) -> None:
        prompt_template(context)


class PromptInputs(TaskInputs[Sample]):
    """Texts in a template, with a mask in place of the label's word."""

    @override
    def auxiliary_weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return the weight of the masked-LM loss, if there are unlabelled texts."""
        weight = unlabelled_weight(context)
        return {MASKED_LM: weight} if weight else {}

    @override
    def training_rows(self, context: TaskContext, samples: Sequence[Sample]) -> TokenizedRows:
        """Return the rows of labelled texts, each with a random unlabelled text if there are."""
        labelled = self.rows(context, samples)
        if not self.auxiliary_weights(context):
            return labelled
        tokenizer = context.tokenizer
        table = context.settings.data
        columns = Columns(table.text, table.label_column, table.pair)
        texts, _ = self._prompts(context, read_unlabelled(table.unlabelled, columns))
        special = {tokenizer.role_id(role) for role in tokenizer.info.special}
        return PromptRows(
            labelled.starts,
            labelled.arrays,
            labelled.values,
            labelled.counts,
            labelled.truncated,
            texts=tuple(np.array(row.ids, np.int64) for row, _ in texts),
            ordinary=sorted(set(tokenizer.vocabulary().values()).difference(special)),
            mask_id=require_mask_id(tokenizer),
        )

    @override
    def rows(self, context: TaskContext, samples: Sequence[Sample]) -> TokenizedRows:
        records = list[TextExample]()
        for sample in samples:
            records.append(TextExample(sample.text, sample.pair, location=sample.location))
        prompts, truncated = self._prompts(context, records)
        rows = [row for row, _ in prompts]
        values = {
            LABELS: np.array([context.target(sample) for sample in samples]),
            POSITION: np.array([row.positions[0] for row in rows]),
            WORDS: np.array([word_ids for _, word_ids in prompts]),
        }
        arrays: dict[str, NDArray[Any]] = {}
        token_ids = [np.array(row.ids, np.int32) for row in rows]
        arrays[context.input_names[0]] = np.concatenate(token_ids)
        type_ids = np.concatenate([np.array(row.type_ids, np.int8) for row in rows])
        if "token_type_ids" in context.input_names and type_ids.any():
            arrays["token_type_ids"] = type_ids
        starts = np.cumsum([0, *(len(row.ids) for row in rows)])
        counts = {MASKED_LM: np.zeros(len(samples), np.int64)}
        return TokenizedRows(starts, arrays, values, counts, truncated)

    def _prompts(
        self, context: TaskContext, records: Sequence[TextExample]
    ) -> tuple[list[tuple[WordRow, tuple[int, ...]]], int]:
        """Return a row for each text, with the token of each label, and how many were cut."""
        tokenizer = context.tokenizer
        words = list(label_words(context).values())
        fitter = PromptFitter(prompt_template(context), "", words, tokenizer, context.max_tokens)
        fitted_texts = fitter.fit(records)
        prompts = list[Prompt]()
        for texts in fitted_texts:
            prompts += fitter.prompts(texts)
        rows = list(masked_rows(prompts, tokenizer, require_mask_id(tokenizer)))
        prompt_rows = list[tuple[WordRow, tuple[int, ...]]]()
        for start in range(0, len(prompts), len(words)):
            word_rows = rows[start : start + len(words)]
            word_prompts = prompts[start : start + len(words)]
            _require_single_tokens(word_prompts, word_rows, tokenizer.role_id("unk"))
            word_ids = tuple(row.labels[0] for (row,) in word_rows)
            prompt_rows.append((word_rows[0][0], word_ids))
        lengths = [len(row.ids) for row, _ in prompt_rows]
        require_tokens(lengths, [record.location for record in records])
        return prompt_rows, sum(texts.truncated > 0 for texts in fitted_texts)

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        padding = {**self.padding(context), TEXT_IDS: context.pad_id, TEXT_LABELS: IGNORED}
        masks = {**self.masks(context), TEXT_IDS: TEXT_MASK}
        return pad_and_stack(examples, padding, terms, masks=masks)

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of the label words, (rows, labels), float32."""
        import torch

        module: Any = model
        inputs = model_inputs(context, batch)
        rows, length = batch[context.input_names[0]].shape
        starts = torch.arange(0, rows * length, length, device=batch[POSITION].device)
        hidden = encode_at(module, inputs, starts + batch[POSITION])
        logits = at_least_float32(module.scores(hidden)).gather(1, batch[WORDS])
        outputs = {context.name: logits}
        if self.auxiliary_weights(context):
            if TEXT_IDS in batch:
                outputs[MASKED_LM] = self._text_losses(context, module, batch)
            else:  # The batch of an evaluation.
                outputs[MASKED_LM] = logits.new_zeros(())
        return Outputs(outputs)

    def _text_losses(
        self, context: TaskContext, model: Any, batch: "Mapping[str, Tensor]"
    ) -> "Tensor":
        """Return the summed cross-entropy of the masked tokens of unlabelled texts."""
        inputs = {context.input_names[0]: batch[TEXT_IDS]}
        if TEXT_MASK in batch and "attention_mask" in context.input_names:
            inputs["attention_mask"] = batch[TEXT_MASK]
        labels = batch[TEXT_LABELS].flatten()
        positions = (labels != IGNORED).nonzero()[:, 0]
        hidden = encode_at(model, inputs, positions)
        output = cross_entropy_sum(predict(model, hidden), labels[positions], MASKED_LM)
        return output.sums[MASKED_LM]


class LabelWordCrossEntropy(TaskLoss):
    """Cross-entropy of a label's word among the label words."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def weights(self, context: TaskContext) -> Mapping[str, float]:
        return {context.name: 1 - unlabelled_weight(context)}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        return class_loss(context.name, outputs.logits[context.name], batch)


def unlabelled_weight(context: TaskContext) -> float:
    """Return the weight of the masked-LM loss on unlabelled texts; 0 without such texts."""
    if not context.settings.data.unlabelled:
        return 0.0
    weight: float = context.options.lm_coef
    return weight


@dataclass(frozen=True)
class PromptRows(TokenizedRows):
    """Prompts of labelled texts, each with a random unlabelled one that has masked tokens."""

    texts: "Sequence[NDArray[np.int64]]" = ()  # Tokens of the unlabelled prompts.
    ordinary: Sequence[int] = ()  # Tokens that are not special.
    mask_id: int = 0

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        example = super().example(index, rng)
        text = self.texts[int(rng.integers(len(self.texts)))]
        ids, labels = self.mask_tokens(text, rng)
        counts = {**example.counts, MASKED_LM: int((labels != IGNORED).sum())}
        arrays = {**example.arrays, TEXT_IDS: ids, TEXT_LABELS: labels}
        return replace(example, arrays=arrays, counts=counts)

    def mask_tokens(
        self, ids: "NDArray[np.int64]", rng: np.random.Generator
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return tokens, some of them masked, and the original ones there; (tokens,) each.

        15 % are chosen, at least one; of these 80 % become the mask token and 10 % a random one.
        Special tokens and the mask of the label are never chosen.
        """
        candidates = np.flatnonzero(np.isin(ids, self.ordinary))
        count = max(1, round(PREDICTED_FRACTION * len(candidates)))
        positions = rng.permutation(candidates)[:count]
        labels = np.full(len(ids), IGNORED, np.int64)
        labels[positions] = ids[positions]
        draws = rng.random(len(positions))
        random_tokens = rng.choice(self.ordinary, size=len(positions))
        replacements = np.where(draws < 1 - UNCHANGED_FRACTION, random_tokens, ids[positions])
        is_masked = draws < 1 - 2 * UNCHANGED_FRACTION
        masked_ids = ids.copy()
        masked_ids[positions] = np.where(is_masked, self.mask_id, replacements)
        return masked_ids, labels


def require_mask_id(tokenizer: TextTokenizer) -> int:
    """Return the mask token; raises ``UsageError`` if there is none."""
    if tokenizer.mask_id is None:
        raise UsageError("the tokenizer has no mask token", "use a masked language model")
    return tokenizer.mask_id


def _require_single_tokens(
    prompts: Sequence[Prompt], rows: Sequence[Sequence[WordRow]], unknown: int | None
) -> None:
    """Check that each label has one known token, in the same place and after the same tokens."""
    for prompt, word_rows in zip(prompts, rows, strict=True):
        start, end = prompt.spans["label"]
        word = prompt.text[start:end]
        if len(word_rows) != 1:
            raise UsageError(
                f"the label word {word!r} has {len(word_rows)} tokens, and training needs words of "
                "one token",
                "give another word; only `zoo run prompt` scores words of several tokens",
            )
        if unknown in word_rows[0].labels:
            raise unknown_word(word)
        if word_rows[0].ids != rows[0][0].ids:
            raise UsageError(
                f"the label word {word!r} changes the tokens around it",
                "put spaces around {label} in the template",
            )


PROMPT = FineTuningTask(
    name="prompt",
    head="masked-lm",
    data=LabelledTexts(WordLabel()),
    inputs=PromptInputs(),
    loss=LabelWordCrossEntropy(),
    results=CLASS_RESULTS,
    model=PromptModel(),
    options_type=PromptOptions,
    defaults={
        "batch_size": 16,
        "max_steps": 250,
        "eval_steps": 50,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 1e-5},
    },
)
