"""Inputs of tasks that score whole texts: tokens around them, both orders, an auxiliary loss."""

# All three come from Radford et al. 2018, "Improving Language Understanding by Generative
# Pre-Training", sections 3.2 and 3.3, and its released code (openai/finetune-transformer-lm,
# ``train.py``).

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError
from zoo.finetuning.base import LABELS, FineTuning, texts_or_pairs
from zoo.finetuning.layers import Layers, LayerTask
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, pad_and_stack, tokenize
from zoo.finetuning.windows import (
    TEXTS,
    WINDOW_LENGTHS,
    collate_windows,
    mean_of_windows,
    text_windows,
    tokenize_windows,
)
from zoo.nn.adapters.prompt import with_prompt, without_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.losses.cross_entropy import summed_cross_entropy
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.input_tokens import InputTokens, with_input_tokens
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

NEXT_TOKEN = "causal-lm"
TextPooling = Literal["cls", "mean", "max"]
POOLING = "pooling"  # option, and field of the configurations
ORDER_LENGTHS = "order_lengths"  # number of tokens of a pair in either order


class InputOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of tasks that score whole texts."""

    # Tokens at the start, between two texts, and at the end of a row, for a tokenizer without any.
    # If its vocabulary lacks them, they get new embeddings.
    input_tokens: tuple[str, str, str] | None = None
    # Weight of an auxiliary loss, the mean cross-entropy of the next token in each row.
    lm_coef: float = 0.0

    def __post_init__(self) -> None:
        if not self.lm_coef >= 0:
            raise ValueError(f"lm_coef is {self.lm_coef}, and has to be 0 or more")


class TextOptions(InputOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of tasks that score a text or a pair of texts."""

    # Add the logits of a pair in both orders, for tasks where the order has no meaning. By default
    # as in the checkpoint.
    both_orders: bool | None = None
    layers: Layers | None = None  # that the classifier reads; see ``LayerTask``
    # What the classifier or its pooler reads: the first token (``cls``), or the ``mean``
    # or ``max`` of all tokens. By default as in the checkpoint.
    pooling: TextPooling | None = None
    # Split texts of more than ``max_seq_len`` tokens into windows that share this number of tokens,
    # and average their logits; see ``TextWindows``. By default, texts are truncated.
    doc_stride: int | None = None


class InputTask(FineTuning):
    """Base class of tasks with ``InputOptions``."""

    options_type: ClassVar[type[Options]] = InputOptions

    @classmethod
    @override
    def adapt_tokenizer(
        cls, run: FineTuneConfig, tokenizer: ExistingTokenizer | None
    ) -> ExistingTokenizer | None:
        """Add the tokens around texts."""
        tokens = run.task_args.get("input_tokens")
        if tokens is None:
            return tokenizer
        if tokenizer is None:
            raise UsageError("the model has its own tokenizer", "leave out input_tokens")
        if not (isinstance(tokens, list | tuple) and len(tokens) == 3):
            raise UsageError(f"input_tokens is {tokens!r}", "give [START,DELIMITER,EXTRACT]")
        content = with_input_tokens(tokenizer.json, tokenizer.info, InputTokens(*map(str, tokens)))
        return ExistingTokenizer(content, tokenizer.info)

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        auxiliary = {NEXT_TOKEN: self.options.lm_coef} if self.options.lm_coef else {}
        return {self.name: 1.0, **auxiliary}

    @override
    def model(self, family: "Family", config: "Config") -> "nn.Module":
        module = super().model(family, config)
        if not self.options.lm_coef:
            return module
        tied = getattr(config, "tie_embeddings", False) or hasattr(module, "choice_logits")
        mixed = getattr(module, "mix", None) is not None  # it returns no last hidden state
        if not hasattr(module, "hidden_and_logits") or not tied or mixed:
            raise UsageError(
                f"the model does not predict tokens in addition to {self.name}", "leave out lm_coef"
            )
        return module

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        rows = super().rows(samples, tokenizer)
        if not self.options.lm_coef:
            return rows
        return replace(rows, counts={**rows.counts, NEXT_TOKEN: np.ones(len(rows), np.int64)})

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        return (self.name,)

    @override
    def loss_with_auxiliary(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        output = self.loss(outputs, batch)
        if NEXT_TOKEN not in outputs.logits:
            return output
        return replace(output, sums={**output.sums, NEXT_TOKEN: outputs.logits[NEXT_TOKEN]})

    def hidden_and_logits(
        self, model: "nn.Module", inputs: "Mapping[str, Tensor]"
    ) -> "tuple[Tensor, dict[str, Tensor]]":
        """Return the logits, and the name -> value of the auxiliary loss if there is one."""
        module: Any = model
        if not self.options.lm_coef:
            return module(**inputs)["logits"], {}
        hidden, logits = module.hidden_and_logits(**with_prompt(module, inputs))
        hidden = without_prompt(module, hidden)
        ids, mask = inputs[self.inputs[0]], inputs.get("attention_mask")
        flat = ids.flatten(0, -2), None if mask is None else mask.flatten(0, -2)
        return logits, {NEXT_TOKEN: next_token_losses(module, hidden, *flat)}


class TextTask(LayerTask, InputTask):
    """Base class of tasks with ``TextOptions``."""

    options_type: ClassVar[type[Options]] = TextOptions
    varying_outputs: ClassVar[str] = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.options.both_orders and self.run.data.pair is None:
            raise UsageError(
                "both_orders needs pairs of texts", "name the column of the second text with --pair"
            )
        if self.options.both_orders and self.options.doc_stride is not None:
            raise UsageError(
                "pairs in both orders cannot be split into windows", "leave out doc_stride"
            )

    @property
    @override
    def averages_windows(self) -> bool:
        return self.options.doc_stride is not None

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        # a pretrained head that adds both orders keeps doing so
        pairs = run.data.pair is not None
        return cls.with_option_of_head(
            run, init, "both_orders", lambda before: before.model.both_orders and pairs
        )

    @classmethod
    @override
    def config_changes(cls, run: FineTuneConfig) -> dict[str, Any]:
        pooling = run.task_args.get("pooling")
        changes = super().config_changes(run)
        return (
            changes
            if pooling is None
            else {**changes, POOLING: None if pooling == "cls" else pooling}
        )

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        rows = super().rows(samples, tokenizer)
        parts = rows.values.get(ORDER_LENGTHS, rows.values.get(WINDOW_LENGTHS))
        if parts is None or not self.options.lm_coef:
            return rows
        return replace(rows, counts={**rows.counts, NEXT_TOKEN: np.array(list(map(len, parts)))})

    @override
    def tokenize(
        self, samples: Sequence[Any], tokenizer: TextTokenizer
    ) -> "tuple[TokenizedTexts, Mapping[str, NDArray[Any]]]":
        """Return texts, the two orders of pairs, or windows of texts."""
        if self.options.both_orders:
            orders = [pair for s in samples for pair in ((s.text, s.pair), (s.pair, s.text))]
            locations = [sample.location for sample in samples for _ in range(2)]
            length = self.run.max_seq_len
            tokens = tokenize(orders, tokenizer, self.inputs, length, locations=locations)
            lengths = np.diff(tokens.starts).reshape(-1, 2)
            truncated = tokens.truncated // 2  # both orders have the same number of tokens
            pairs = replace(tokens, starts=tokens.starts[::2], truncated=truncated)
            return pairs, {ORDER_LENGTHS: lengths}
        if self.options.doc_stride is None:
            return super().tokenize(samples, tokenizer)
        texts, windows = texts_or_pairs(samples), text_windows(self.run, self.options.doc_stride)
        locations = [sample.location for sample in samples]
        tokens, lengths = tokenize_windows(
            texts, tokenizer, self.inputs, windows, locations=locations
        )
        return tokens, {WINDOW_LENGTHS: lengths}

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        # with both orders, tensors are (rows, 2, tokens)
        counts, masks = list(self.loss_weights), self.masks()
        if WINDOW_LENGTHS in examples[0].values:
            return collate_windows(examples, self.padding(), counts, masks=masks)
        if not self.options.both_orders:
            return super().collate(examples)
        lengths = np.stack([row.values[ORDER_LENGTHS] for row in examples])
        return pad_and_stack(examples, self.padding(), counts, masks=masks, lengths=lengths)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        inputs = {name: batch[name] for name in self.inputs if name in batch}
        if self.options.both_orders:
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        logits, auxiliary = self.hidden_and_logits(model, inputs)
        logits = at_least_float32(logits)
        if self.options.both_orders:
            logits = logits.view(-1, 2, logits.shape[-1]).sum(1)
        if TEXTS in batch:
            logits = mean_of_windows(logits, batch[TEXTS], len(batch[LABELS]))
        return Outputs({self.name: logits, **auxiliary})

    @override
    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        fields = {"both_orders": bool(self.options.both_orders)}
        return {"model": TrainedModel(model, self.config, self.head, fields=fields)}


def next_token_losses(
    model: Any, hidden: "Tensor", input_ids: "Tensor", attention_mask: "Tensor | None"
) -> "Tensor":
    """Return the sum over rows of the mean cross-entropy of the next token."""
    # hidden: states of the last layer, (rows, tokens, hidden); input_ids: (rows, tokens), int64;
    # attention_mask: (rows, tokens), ``None`` for all 1
    # Rows are padded on the right; a row with fewer than two tokens counts as 0.
    tokens = input_ids.shape[1]
    lengths = [tokens] * len(hidden) if attention_mask is None else attention_mask.sum(1).tolist()
    total = at_least_float32(hidden.new_zeros(()))
    for row, length in enumerate(lengths):
        if length > 1:  # one row at a time: the logits of a whole batch would take gigabytes
            projection = model.project(hidden[row, : length - 1])
            loss, _ = summed_cross_entropy(projection, input_ids[row, 1:length])
            total = total + loss / (length - 1)
    return total
