"""Inputs of tasks that score texts or pairs of texts: windows, both orders, tokens around them."""

# Both orders and the tokens around texts are those of Radford et al. 2018, "Improving Language
# Understanding by Generative Pre-Training", section 3.3, and its released code
# (openai/finetune-transformer-lm, ``train.py``).

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from zoo.data.readers.labelled import Sample
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError
from zoo.finetuning.heads import with_option_of_head
from zoo.finetuning.next_token import (
    NEXT_TOKEN,
    logits_and_next_token,
    next_token_weights,
    require_next_token,
)
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, pad_and_stack, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskInputs,
    TaskModel,
    model_inputs,
    texts_or_pairs,
)
from zoo.finetuning.windows import (
    TEXTS,
    WINDOW_LENGTHS,
    collate_windows,
    mean_of_windows,
    text_windows,
    tokenize_windows,
)
from zoo.nn.dtypes import at_least_float32
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.objectives.base import Batch, Example, Outputs, TrainedModel
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tokenizers.input_tokens import InputTokens, with_input_tokens
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit


# ``mix`` is a learned mix of all layers (Peters et al. 2018, arXiv:1802.05365, equation 1). A
# number selects one layer: 0 for the embeddings, negative numbers from the end. The default is the
# checkpoint's, or else the last layer.
Layers = Literal["mix"] | int
MIX = "mix"  # The field of the configurations: whether a classifier reads a mix.


def layer_changes(settings: FineTuneConfig) -> dict[str, Any]:
    """Return the fields of the model's configuration that the option ``layers`` sets."""
    if settings.task_args.get("layers") is None:
        return {}
    return {MIX: True}


def select_layer(model: "nn.Module", layers: Layers | None) -> None:
    """Give a single layer all the weight of the model's mix; a learned mix stays as it is."""
    if not isinstance(layers, int):
        return
    for module in model.modules():
        if not isinstance(module, ScalarMix):
            continue
        try:
            module.select(layers)
        except IndexError as error:
            raise UsageError(
                f"task_args.layers is {layers}, and the model has {module.layers} layers "
                "with the embeddings",
                f"give one from 0, the embeddings, to {module.layers - 1}, the last",
            ) from error


TextPooling = Literal["cls", "mean", "max"]
POOLING = "pooling"  # The option, and the field of the configurations.
ORDER_LENGTHS = "order_lengths"  # Number of tokens of a pair in either order.


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
    # The layers that the classifier reads; see ``zoo.finetuning.text_inputs``.
    layers: Layers | None = None
    # What the classifier or its pooler reads: the first token (``cls``), or the ``mean``
    # or ``max`` of all tokens. By default as in the checkpoint.
    pooling: TextPooling | None = None
    # Split texts of more than ``max_seq_len`` tokens into windows that share this number of tokens,
    # and average their logits; see ``TextWindows``. By default, texts are truncated.
    doc_stride: int | None = None


class TextModel(TaskModel):
    """A classifier of texts, with ``TextOptions``."""

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        """Keep adding both orders if the pretrained head does."""
        has_pairs = settings.data.pair is not None

        def adds_both_orders(checkpoint: "Checkpoint") -> bool:
            return has_pairs and checkpoint.model.both_orders

        return with_option_of_head(
            settings, init, "both_orders", task.head, task.problem, adds_both_orders
        )

    @override
    def config_changes(self, settings: FineTuneConfig) -> dict[str, Any]:
        changes = layer_changes(settings)
        pooling = settings.task_args.get(POOLING)
        if pooling is not None:
            changes[POOLING] = None if pooling == "cls" else pooling
        return changes

    @override
    def adapt_tokenizer(
        self, settings: FineTuneConfig, tokenizer: ExistingTokenizer | None
    ) -> ExistingTokenizer | None:
        return add_input_tokens(settings, tokenizer)

    @override
    def require_valid(self, context: TaskContext) -> None:
        options: TextOptions = context.options
        if not options.both_orders:
            return
        if context.settings.data.pair is None:
            raise UsageError(
                "both_orders needs pairs of texts",
                "name the column of the second text with --pair",
            )
        if options.doc_stride is not None:
            raise UsageError(
                "pairs in both orders cannot be split into windows", "leave out doc_stride"
            )

    @override
    def build(self, context: TaskContext, family: "Family", config: "Config") -> "nn.Module":
        module = super().build(context, family, config)
        require_next_token(context, module)
        return module

    @override
    def prepare(self, context: TaskContext, model: "nn.Module") -> None:
        select_layer(model, context.options.layers)

    @override
    def trained_models(self, context: TaskContext, model: "nn.Module") -> dict[str, TrainedModel]:
        fields = {"both_orders": bool(context.options.both_orders)}
        return {"model": TrainedModel(model, context.config, context.head, fields=fields)}


class TextInputs(TaskInputs[Sample]):
    """Texts, pairs of texts, pairs in both orders, or windows of long texts."""

    varying_outputs: ClassVar[str] = ""

    @override
    def averages_windows(self, context: TaskContext) -> bool:
        return context.options.doc_stride is not None

    @override
    def auxiliary_weights(self, context: TaskContext) -> Mapping[str, float]:
        return next_token_weights(context)

    @override
    def rows(self, context: TaskContext, samples: Sequence[Sample]) -> TokenizedRows:
        targets = np.array([context.target(sample) for sample in samples])
        tokens, lengths = self.tokenize(context, samples)
        counts: dict[str, NDArray[Any]] = {}
        if context.options.lm_coef:
            # One term for each sequence: a text, an order of a pair, or a window.
            sequences = np.ones(len(samples), np.int64)
            for parts in lengths.values():
                sequences = np.array([len(part) for part in parts])
            counts[NEXT_TOKEN] = sequences
        values = {LABELS: targets, **lengths}
        return TokenizedRows(tokens.starts, tokens.arrays, values, counts, tokens.truncated)

    def tokenize(
        self, context: TaskContext, samples: Sequence[Sample]
    ) -> "tuple[TokenizedTexts, Mapping[str, NDArray[Any]]]":
        """Return the tokens of samples, and the lengths of the sequences that share a row."""
        if context.options.both_orders:
            return self._tokenize_orders(context, samples)
        texts = texts_or_pairs(samples)
        locations = [sample.location for sample in samples]
        if context.options.doc_stride is None:
            tokens = tokenize(
                texts,
                context.tokenizer,
                context.input_names,
                context.max_tokens,
                locations=locations,
            )
            return tokens, {}
        windows = text_windows(context.settings, context.options.doc_stride)
        tokens, lengths = tokenize_windows(
            texts, context.tokenizer, context.input_names, windows, locations=locations
        )
        return tokens, {WINDOW_LENGTHS: lengths}

    def _tokenize_orders(
        self, context: TaskContext, samples: Sequence[Sample]
    ) -> "tuple[TokenizedTexts, Mapping[str, NDArray[Any]]]":
        orders = list[Any]()
        locations = list[str]()
        for sample in samples:
            orders.append((sample.text, sample.pair))
            orders.append((sample.pair, sample.text))
            locations += [sample.location, sample.location]
        tokens = tokenize(
            orders,
            context.tokenizer,
            context.input_names,
            context.max_tokens,
            locations=locations,
        )
        lengths = np.diff(tokens.starts).reshape(-1, 2)
        truncated = tokens.truncated // 2  # Both orders have the same number of tokens.
        pairs = replace(tokens, starts=tokens.starts[::2], truncated=truncated)
        return pairs, {ORDER_LENGTHS: lengths}

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        """Return a batch; with both orders, its tensors are (rows, 2, tokens)."""
        padding = self.padding(context)
        masks = self.masks(context)
        if WINDOW_LENGTHS in examples[0].values:
            return collate_windows(examples, padding, terms, masks=masks)
        if not context.options.both_orders:
            return super().collate(context, examples, terms)
        lengths = np.stack([row.values[ORDER_LENGTHS] for row in examples])
        return pad_and_stack(examples, padding, terms, masks=masks, lengths=lengths)

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        inputs = model_inputs(context, batch)
        both_orders = context.options.both_orders
        if both_orders:
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        logits, auxiliary = logits_and_next_token(context, model, inputs)
        logits = at_least_float32(logits)
        if both_orders:
            logits = logits.view(-1, 2, logits.shape[-1]).sum(1)
        if TEXTS in batch:
            logits = mean_of_windows(logits, batch[TEXTS], len(batch[LABELS]))
        return Outputs({context.name: logits, **auxiliary})


def add_input_tokens(
    settings: FineTuneConfig, tokenizer: ExistingTokenizer | None
) -> ExistingTokenizer | None:
    """Return a tokenizer that puts the tokens of the option ``input_tokens`` around texts."""
    tokens = settings.task_args.get("input_tokens")
    if tokens is None:
        return tokenizer
    if tokenizer is None:
        raise UsageError("the model has its own tokenizer", "leave out input_tokens")
    if not (isinstance(tokens, list | tuple) and len(tokens) == 3):
        raise UsageError(f"input_tokens is {tokens!r}", "give [START,DELIMITER,EXTRACT]")
    input_tokens = InputTokens(*map(str, tokens))
    content = with_input_tokens(tokenizer.json, tokenizer.info, input_tokens)
    return ExistingTokenizer(content, tokenizer.info)
