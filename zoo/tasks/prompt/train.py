"""Fine-tuning of a masked model with a template and label words."""

# The pattern models of Schick and Schütze 2021 (arXiv:2001.07676, section 3.1 and 3.2): the model
# fills a label's word into the template, and the probabilities of the labels are the softmax of
# their words' logits. On unlabelled texts, the masked-LM loss keeps the model a language model.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from zoo.data.readers.labelled import Columns, describe_labels
from zoo.data.readers.problems import RowError
from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import OneClassTask, class_loss
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, require_tokens
from zoo.inference.processing.records import TextExample
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import cross_entropy_sum, encode_at, predict
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.prompt.fit import PromptFitter
from zoo.tasks.prompt.scoring import WordRow, masked_rows, unknown_word
from zoo.tasks.prompt.template import Prompt, Template, read_label_words, require_label_words
from zoo.tasks.prompt.unlabelled import read_unlabelled
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.training.state.pretrained import PretrainedInit

MASKED_LM = "masked-lm"  # the loss term
POSITION, WORDS = "label_position", "word_ids"
TEXT_IDS, TEXT_MASK, TEXT_LABELS = "text_ids", "text_attention_mask", "text_labels"
MASKED, KEPT = 0.15, 0.1  # fractions: of tokens that are predicted; of these, unchanged or random


class PromptOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of fine-tuning with a template."""

    template: tuple[str, ...] | str = ()  # the template: one text, or file
    # words of one token that stand for labels: label -> word, or ``LABEL=WORD,...``
    label_words: dict[str, str] | str = ""
    # weight of the masked-LM loss on ``data.unlabelled``; the labels' loss has the rest
    lm_coef: float = 1e-4

    def __post_init__(self) -> None:
        self.check_fraction("lm_coef", ends=True)

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates as they are given."""
        return (self.template,) if isinstance(self.template, str) else self.template


def resolved_words(value: str | Mapping[str, str]) -> dict[str, str]:
    """Return label -> its word, of settings."""
    if not value:
        raise UsageError("there are no label words", "give --label-words LABEL=WORD,...")
    return read_label_words(value) if isinstance(value, str) else require_label_words(dict(value))


class PromptTuning(OneClassTask):
    """Cross-entropy of a label's word among the label words, and the masked-LM loss."""

    name: ClassVar[str] = "prompt"
    head: ClassVar[str] = "masked-lm"
    problem: ClassVar[Problem | None] = None  # the head is a language model's
    options_type: ClassVar[type[Options]] = PromptOptions
    defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": 16,
        "max_steps": 250,
        "eval_steps": 50,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 1e-5},
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        (source,) = self.options.templates
        self.template = Template.parse(source)
        self.template.require_label()
        self.is_training = True  # the first rows are of the training data

    @cached_property
    def words(self) -> dict[str, str]:
        """Label -> its word."""
        return resolved_words(self.options.label_words)

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Put the contents of a file in place of its name."""
        checkpoint = None if init is None else init.checkpoints.get("model")
        if checkpoint is not None and "fill-mask" not in checkpoint.head.tasks:
            raise UsageError(
                f"{checkpoint.name} has the head {checkpoint.head_name}, which predicts no masked "
                "tokens",
                "use a masked language model",
            )
        options = run.task_args
        templates = options.get("template") or ()
        templates = [templates] if isinstance(templates, str) else list(templates)
        if len(templates) != 1:
            raise UsageError(
                f"{cls.name} trains with one template, and there are {len(templates)}",
                "give --template FILE|TEXT once; --task pet trains with several",
            )
        words = resolved_words(options.get("label_words") or "")
        source = Template.read(str(templates[0])).source
        args = {**options, "template": [source], "label_words": words}
        return msgspec.structs.replace(run, task_args=args)

    @classmethod
    @override
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the labels that have words."""
        return tuple(resolved_words(run.task_args.get("label_words") or ""))

    @classmethod
    @override
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return nothing: the outputs are tokens."""
        return ()

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return tuple(self.words)

    @override
    def target(self, sample: Any) -> Any:
        (name,) = self.label_names(sample, self.run.data)
        if name not in self.words:
            raise RowError(
                f"{sample.location} has the label {name!r}, which has no word",
                f"label words are for {describe_labels(self.labels, name)}",
            )
        return self.indices[name]

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        weight = self.options.lm_coef if self.run.data.unlabelled else 0.0
        return {self.name: 1 - weight, **({MASKED_LM: weight} if weight else {})}

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        return (self.name,)

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Return prompts with a mask in place of the label's word."""
        records = [TextExample(s.text, s.pair, location=s.location) for s in samples]
        prompts, truncated = self._prompts(records, tokenizer)
        values = {
            LABELS: np.array([self.target(sample) for sample in samples]),
            POSITION: np.array([row.positions[0] for row, _ in prompts]),
            WORDS: np.array([words for _, words in prompts]),
        }
        count = len(samples)
        counts = {self.name: np.ones(count, np.int64), MASKED_LM: np.zeros(count, np.int64)}
        rows = [row for row, _ in prompts]
        arrays = {self.inputs[0]: np.concatenate([np.array(row.ids, np.int32) for row in rows])}
        kinds = np.concatenate([np.array(row.type_ids, np.int8) for row in rows])
        if "token_type_ids" in self.inputs and kinds.any():
            arrays["token_type_ids"] = kinds
        starts = np.cumsum([0, *(len(row.ids) for row in rows)])
        labelled = TokenizedRows(starts, arrays, values, counts, truncated)
        is_training, self.is_training = self.is_training, False
        if not is_training or MASKED_LM not in self.loss_weights:
            return labelled
        columns = Columns(self.run.data.text, self.run.data.label_column, self.run.data.pair)
        texts, _ = self._prompts(read_unlabelled(self.run.data.unlabelled, columns), tokenizer)
        special = {tokenizer.role_id(role) for role in tokenizer.info.special}
        ordinary = sorted(set(tokenizer.vocabulary().values()).difference(special))
        return PromptRows(
            starts,
            arrays,
            values,
            counts,
            truncated,
            texts=tuple(np.array(row.ids, np.int64) for row, _ in texts),
            ordinary=ordinary,
            mask_id=_mask_id(tokenizer),
        )

    def _prompts(
        self, records: Sequence[TextExample], tokenizer: TextTokenizer
    ) -> tuple[list[tuple[WordRow, tuple[int, ...]]], int]:
        """Return a row for each text, with the token of each label, and how many were cut."""
        words = list(self.words.values())
        fitter = PromptFitter(self.template, "", words, tokenizer, self.run.max_seq_len)
        fitted, found = fitter.fit(records), []
        prompts = [prompt for texts in fitted for prompt in fitter.prompts(texts)]
        rows = list(masked_rows(prompts, tokenizer, _mask_id(tokenizer)))
        for start in range(0, len(prompts), len(words)):
            of_words = rows[start : start + len(words)]
            of_texts = prompts[start : start + len(words)]
            _require_single_tokens(of_texts, of_words, tokenizer.role_id("unk"))
            found.append((of_words[0][0], tuple(row.labels[0] for (row,) in of_words)))
        require_tokens([len(row.ids) for row, _ in found], [r.location for r in records])
        return found, sum(texts.truncated > 0 for texts in fitted)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        fill = {**self.padding(), TEXT_IDS: self.pad_id, TEXT_LABELS: IGNORED}
        masks = {**self.masks(), TEXT_IDS: TEXT_MASK}
        return pad_and_stack(examples, fill, list(self.loss_weights), masks=masks)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the label words, (rows, labels), float32."""
        import torch

        module: Any = model
        inputs = {name: batch[name] for name in self.inputs if name in batch}
        rows, length = batch[self.inputs[0]].shape
        starts = torch.arange(0, rows * length, length, device=batch[POSITION].device)
        hidden = encode_at(module, inputs, starts + batch[POSITION])
        logits = {self.name: at_least_float32(module.scores(hidden)).gather(1, batch[WORDS])}
        if MASKED_LM in self.loss_weights:
            logits[MASKED_LM] = self._text_losses(module, batch, like=logits[self.name])
        return Outputs(logits)

    def _text_losses(
        self, model: Any, batch: "Mapping[str, Tensor]", *, like: "Tensor"
    ) -> "Tensor":
        """Return the summed cross-entropy of the masked tokens of unlabelled texts."""
        if TEXT_IDS not in batch:  # of an evaluation
            return like.new_zeros(())
        inputs = {self.inputs[0]: batch[TEXT_IDS]}
        if TEXT_MASK in batch and "attention_mask" in self.inputs:
            inputs["attention_mask"] = batch[TEXT_MASK]
        labels = batch[TEXT_LABELS].flatten()
        positions = (labels != IGNORED).nonzero()[:, 0]
        hidden = encode_at(model, inputs, positions)
        output = cross_entropy_sum(predict(model, hidden), labels[positions], MASKED_LM)
        return output.sums[MASKED_LM]

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        return class_loss(self.name, outputs.logits[self.name], batch[LABELS])

    @override
    def loss_with_auxiliary(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        output = self.loss(outputs, batch)
        if MASKED_LM not in outputs.logits:
            return output
        return replace(output, sums={**output.sums, MASKED_LM: outputs.logits[MASKED_LM]})


@dataclass(frozen=True)
class PromptRows(TokenizedRows):
    """Prompts of labelled texts, each with a random unlabelled one that has masked tokens."""

    texts: "Sequence[NDArray[np.int64]]" = ()  # tokens of the unlabelled prompts
    ordinary: Sequence[int] = ()  # tokens that are not special
    mask_id: int = 0

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        example = super().example(index, rng)
        ids, labels = self.masked(self.texts[int(rng.integers(len(self.texts)))], rng)
        counts = {**example.counts, MASKED_LM: int((labels != IGNORED).sum())}
        arrays = {**example.arrays, TEXT_IDS: ids, TEXT_LABELS: labels}
        return replace(example, arrays=arrays, counts=counts)

    def masked(
        self, ids: "NDArray[np.int64]", rng: np.random.Generator
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return tokens, some of them masked, and the original ones there; (tokens,) each."""
        # 15 % are chosen, at least one; of these 80 % become the mask token and 10 % a random one.
        # Special tokens and the mask of the label are never chosen.
        able = np.flatnonzero(np.isin(ids, self.ordinary))
        hidden, labels = ids.copy(), np.full(len(ids), IGNORED, np.int64)
        chosen = rng.permutation(able)[: max(1, round(MASKED * len(able)))]
        labels[chosen] = ids[chosen]
        draws = rng.random(len(chosen))
        others = rng.choice(self.ordinary, size=len(chosen))
        hidden[chosen] = np.where(
            draws < 1 - 2 * KEPT, self.mask_id, np.where(draws < 1 - KEPT, others, ids[chosen])
        )
        return hidden, labels


def _mask_id(tokenizer: TextTokenizer) -> int:
    if tokenizer.mask_id is None:
        raise UsageError("the tokenizer has no mask token", "use a masked language model")
    return tokenizer.mask_id


def _require_single_tokens(
    prompts: Sequence[Prompt], rows: Sequence[Sequence[WordRow]], unknown: int | None
) -> None:
    """Check that each label has one known token, in the same place and after the same tokens."""
    for prompt, of_word in zip(prompts, rows, strict=True):
        start, end = prompt.spans["label"]
        word = prompt.text[start:end]
        if len(of_word) != 1:
            raise UsageError(
                f"the label word {word!r} has {len(of_word)} tokens, and training needs words of "
                "one token",
                "give another word; only `zoo run prompt` scores words of several tokens",
            )
        if unknown in of_word[0].labels:
            raise unknown_word(word)
        if of_word[0].ids != rows[0][0].ids:
            raise UsageError(
                f"the label word {word!r} changes the tokens around it",
                "put spaces around {label} in the template",
            )
