"""SetFit: a sentence encoder is trained on pairs, and a logistic regression on its embeddings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import torch

from zoo.errors import UsageError
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import OneClassTask
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, tokenize
from zoo.finetuning.text_inputs import POOLING
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.sentence_embedding.losses import cosine_error
from zoo.tasks.setfit.pairs import contrastive_pairs, neighbouring_pairs
from zoo.tasks.setfit.regression import fit
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

SENTENCE_HEAD = "sentence_head"  # field of the configurations
POOLINGS = ("mean", "max", "cls")
LENGTHS, SIMILAR, VECTORS = "lengths", "similar", "vectors"
FITTED, COUNTED = "fitted", "counted"  # rows of the regression, and those that the loss counts


class SetFitOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``SetFit``; ``None`` takes the checkpoint's setting, if it has one."""

    # number of pairs with the same label, and of pairs with different labels, of each text
    num_iterations: int = 20
    c: float = 1.0  # inverse of the strength of the regression's regularization
    pooling: str | None = None  # of the vectors of tokens: ``mean``, ``max`` or ``cls``
    normalize: bool | None = None  # scale embeddings to unit length

    def __post_init__(self) -> None:
        if self.num_iterations < 1:
            raise ValueError(f"num_iterations is {self.num_iterations}, not positive")
        if not 0 < self.c < float("inf"):
            raise ValueError(f"c is {self.c}, not positive")


class SetFit(OneClassTask):
    """Squared error of the cosine similarity of pairs, then a logistic regression."""

    # Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", arXiv:2209.11055, section
    # 3. Every evaluation embeds the training texts and fits the regression, whose weights become
    # the head of the model.

    # A pair has the similarity 1 if its texts have the same label, and 0 otherwise.
    name: ClassVar[str] = "setfit"
    head: ClassVar[str] = "sequence-classification"
    options_type: ClassVar[type[Options]] = SetFitOptions
    defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": 16,
        "num_train_epochs": 1.0,
        "warmup_ratio": 0.1,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 2e-5},
    }

    uses_all_parameters: bool = False  # the regression sets the head, and the loss does not read it

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.run.data.pair is not None:
            raise UsageError(f"{self.name} classifies single texts", "leave out --pair")
        for name in ("ema_decay", "fsdp", "class_weights"):
            if getattr(self.run, name):
                raise UsageError(f"{self.name} does not support {name}", "leave it out")
        self.training: Sequence[Any] = ()  # samples that the regression is fitted on
        self.classifier: nn.Linear | None = None

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Take pooling and normalization from the checkpoint where they are not set."""
        checkpoint = None if init is None else init.checkpoints.get("model")
        stored = None if checkpoint is None else checkpoint.model.pooling
        mode, unit = ("mean", False) if stored is None else (stored.mode, stored.normalize)
        given = {name: value for name, value in run.task_args.items() if value is not None}
        if stored is not None and (stored.modules or mode not in POOLINGS) and POOLING not in given:
            raise UsageError(
                "a classifier cannot read the embeddings of this model, which has further modules",
                f"--set task_args.pooling={'|'.join(POOLINGS)}",
            )
        options = {POOLING: mode, "normalize": unit, **given}
        if options[POOLING] not in POOLINGS:
            raise UsageError(
                f"pooling is {options[POOLING]!r}, not {' or '.join(POOLINGS)}", "name one of them"
            )
        return msgspec.structs.replace(run, task_args=options)

    @classmethod
    @override
    def config_changes(cls, run: FineTuneConfig) -> dict[str, Any]:
        mode = run.task_args.get(POOLING, "mean")
        head = "unit" if run.task_args.get("normalize") else "plain"
        return {SENTENCE_HEAD: head, POOLING: None if mode == "cls" else mode}

    @override
    def model(self, family: "Family", config: "Config") -> "nn.Module":
        module: Any = super().model(family, config)
        self.classifier = module.head
        return module  # type: ignore[no-any-return]

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Return pairs of texts."""
        # The first call, on the training data, returns contrastive pairs. Later ones return the
        # samples and the training data's, each with the next one.
        is_training = not self.training
        everything = [*samples, *self.training]
        labels = np.array([self.target(sample) for sample in everything])
        if is_training:
            self.training = list(samples)
            pairs = contrastive_pairs(labels, self.options.num_iterations, self.run.seed)
        else:
            pairs = neighbouring_pairs(labels)
        fitted = np.arange(len(everything)) >= (0 if is_training else len(samples))
        texts = [text for p in zip(pairs.first, pairs.second, strict=True) for text in p]
        tokens = tokenize(
            [everything[number].text for number in texts],
            tokenizer,
            self.inputs,
            self.run.max_seq_len,
            locations=[everything[number].location for number in texts],
        )
        counted = np.ones(len(texts) // 2, np.int64) if is_training else 1 - fitted
        values = {
            LENGTHS: np.diff(tokens.starts).reshape(-1, 2),
            SIMILAR: pairs.similar,
            LABELS: labels[pairs.first],
            FITTED: fitted[pairs.first],
            COUNTED: counted,
        }
        return TokenizedRows(
            tokens.starts[::2], tokens.arrays, values, {self.name: counted}, tokens.truncated
        )

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        # tensors are (rows, 2, tokens)
        lengths = np.stack([row.values[LENGTHS] for row in examples])
        return pad_and_stack(
            examples, self.padding(), list(self.loss_weights), masks=self.masks(), lengths=lengths
        )

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the embeddings of both texts of each pair, (rows, 2, hidden), float32."""
        encoder: Any = model
        inputs = {n: batch[n].flatten(0, 1) for n in self.inputs if n in batch}
        hidden = encoder.encode_for_head(**with_prompt(encoder, inputs))
        vectors = at_least_float32(encoder.pooler(hidden))
        return Outputs({self.name: vectors.view(-1, 2, vectors.shape[-1])})

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the squared error; of an evaluation, of pairs that begin with its samples."""
        vectors = outputs.logits[self.name]
        with torch.autocast(vectors.device.type, enabled=False):
            errors = cosine_error(vectors[:, 0], vectors[:, 1], batch[SIMILAR])
        predictions = {
            VECTORS: vectors[:, 0].detach(),
            LABELS: batch[LABELS],
            FITTED: batch[FITTED],
        }
        return LossOutput({self.name: (errors * batch[COUNTED]).sum()}, predictions=predictions)

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Fit the regression on the training texts, and return its metrics on the others."""
        vectors, labels = predictions[VECTORS], predictions[LABELS]
        fitted, classes = predictions[FITTED].astype(bool), len(self.config.labels)
        found = fit(vectors[fitted], labels[fitted], classes, self.options.c)
        if self.classifier is not None:
            with torch.no_grad():
                self.classifier.weight.copy_(torch.from_numpy(found.weight))
                self.classifier.bias.copy_(torch.from_numpy(found.bias))
        chosen = found.logits(vectors[~fitted]).argmax(-1)
        counts = ClassCounts.of(labels[~fitted], chosen, classes)
        return {name: float(value) for name, value in classification_metrics(counts).items()}

    @override
    def of_samples(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        return {}
