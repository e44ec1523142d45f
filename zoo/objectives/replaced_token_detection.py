"""Replaced-token detection (Clark et al. 2020, arXiv:2003.10555).

A generator learns to tell masked tokens. What it samples for them is put into the text, and a
discriminator learns to tell, of every token, whether it is the one that stood there. A sample
that happens to be the original counts as original. Both learn at once, each from its own loss:
nothing flows back through the samples. After that, the discriminator is what was wanted.

Where the paper is silent or says otherwise, the released code is followed:

* Of the tokens that are chosen, 85 % become the mask, and the rest stay as they are
  (pretrain_helpers.py; the paper masks all). All of them are told, and sampled anew.
* All that stands between ids and blocks is shared, segments and the norm included
  (modeling.py; the paper names token and position embeddings).
* The discriminator learns from special tokens, too, but not from padding (run_pretraining.py).
  (Its ``disc_auc``, of 200 thresholds, takes padding for original tokens; here, none counts.)

There, samples are drawn with noise on all scores. Here, each takes one number of [0, 1) that
comes with the row, so that how rows are split over batches and devices changes nothing.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec
import numpy as np

from zoo.errors import UsageError
from zoo.objectives.base import (
    Example,
    LossOutput,
    Options,
    Outputs,
    TrainedModel,
    predict_at,
)
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.losses.auc import auc_counts
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, MaskedOptions, model_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.objectives.examples.vocabulary import TokenizerView

REPLACED_TOKEN = "replaced-token-detection"  # the loss term, and the head
EmbeddingSharing = Literal["tied", "gradient-disentangled", "none"]


class ReplacedOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be chosen about replaced-token detection; those of masking, and:

    Attributes:
        generator_width_ratio: hidden size of the generator, as a fraction of the discriminator's.
        generator_depth_ratio: number of layers of the generator, as a fraction of the
            discriminator's.
        discriminator_weight: weight of the discriminator's loss; the generator's has weight 1.
        embedding_sharing: input embeddings of the discriminator: ``tied`` to the generator's,
            ``gradient-disentangled`` (see ``zoo.objectives.losses.embedding_sharing``), or
            ``none`` for separate tables.
    """

    mask_token_prob: float = 0.85
    random_token_prob: float = 0.0
    generator_width_ratio: float = 0.25
    generator_depth_ratio: float = 1.0
    discriminator_weight: float = 50.0
    embedding_sharing: EmbeddingSharing = "tied"

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ValueError: a number is out of its range.
        """
        super().__post_init__()
        for name in ("generator_width_ratio", "generator_depth_ratio", "discriminator_weight"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, which is not positive")


def generator_config(config: Any, options: ReplacedOptions) -> Any:
    """Return a generator's configuration (``get_generator_config`` of run_pretraining.py).

    Heads are 64 wide, and there is at least one; feed-forward networks are four times as wide as
    the blocks. Embeddings keep their width, where that is a setting of its own.

    Raises:
        UsageError: it cannot be built, or the two cannot share embeddings.
    """
    width = round(config.hidden_size * options.generator_width_ratio)
    changes = {
        "hidden_size": width,
        "num_layers": max(1, round(config.num_layers * options.generator_depth_ratio)),
        "intermediate_size": 4 * width,
        "num_heads": max(1, width // 64),
    }
    try:
        found = msgspec.convert({**msgspec.to_builtins(config), **changes}, type(config))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            f"the generator: {error}", "choose another objective_args.generator_width_ratio"
        ) from error
    if options.embedding_sharing != "none" and embedding_width(found) != embedding_width(config):
        raise UsageError(
            f"embeddings of a generator that is {width} wide cannot be those of a discriminator "
            f"that is {config.hidden_size} wide",
            "--set objective_args.generator_width_ratio=1.0, or "
            "--set objective_args.embedding_sharing=none",
        )
    return found


def embedding_width(config: Any) -> int:
    """Return how wide token embeddings are."""
    width: int = getattr(config, "embedding_size", config.hidden_size)
    return width


def sample_from_logits(logits: "Tensor", uniforms: "Tensor") -> "Tensor":
    """Draw a token from each line's softmax.

    The first token whose cumulated probability is above the number is taken; one with a
    probability of zero never is. Where rounding leaves no such token, it is the last one that has
    a probability.

    Args:
        scores: (n, vocabulary), float32.
        uniforms: (n,), float32, in [0, 1).

    Returns:
        (n,), int64.
    """
    import torch

    cumulated = logits.softmax(-1).cumsum(-1)
    whole = cumulated[:, -1:].contiguous()
    found = torch.searchsorted(cumulated, uniforms[:, None] * whole, right=True)
    return found.minimum(torch.searchsorted(cumulated, whole))[:, 0]


class ReplacedTokenDetection(MaskedLanguageModelling):
    """Tell which tokens a generator replaced.

    Raises:
        UsageError: the generator cannot be built.
    """

    name: ClassVar[str] = REPLACED_TOKEN
    head: ClassVar[str] = REPLACED_TOKEN
    options_type: ClassVar[type[Options]] = ReplacedOptions

    def __init__(
        self, vocabulary: "TokenizerView", config: "Config", length: int, options: Any = None
    ) -> None:
        super().__init__(vocabulary, config, length, options)
        self.generator_config = generator_config(config, self.options)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """See ``Objective``."""
        return {MASKED_LM: 1.0, REPLACED_TOKEN: self.options.discriminator_weight}

    @classmethod
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        """See ``Objective``; two heads are needed."""
        if MaskedLanguageModelling.head not in family.heads():
            return f"{family.name} has no head {MaskedLanguageModelling.head!r} for a generator"
        return super().unsupported_reason(family, config)

    def model(self, family: "Family", config: "Config") -> "nn.Module":
        """See ``Objective``: a ``Pair``."""
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        generator = family.model(self.generator_config, MaskedLanguageModelling.head)
        return GeneratorDiscriminator(
            generator, family.model(config, self.head), self.options.embedding_sharing
        )

    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        """See ``Objective``: the discriminator, and the generator beside it."""
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        assert isinstance(model, GeneratorDiscriminator), "what self.learner built"
        return {
            "model": TrainedModel(model.plain_discriminator(), self.config, self.head),
            "generator": TrainedModel(
                model.generator, self.generator_config, MaskedLanguageModelling.head
            ),
        }

    def after_load(
        self, model: "nn.Module", models: Mapping[str, TrainedModel], loaded: Collection[str]
    ) -> "list[Tensor]":
        """See ``Objective``: tables that are sums become the discriminator's."""
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        assert isinstance(model, GeneratorDiscriminator), "what self.learner built"
        return model.after_load(models["model"].module, both="generator" not in loaded)

    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Hide tokens of a row, and draw what their samples will be drawn with."""
        row = super().mask_row(packed, rng)
        uniforms = rng.random(row.counts[MASKED_LM], dtype=np.float32)
        return Example(
            row.arrays,
            values={**row.values, "uniforms": uniforms},
            positions=row.positions,
            counts={**row.counts, REPLACED_TOKEN: int(np.count_nonzero(packed.document_ids))},
        )

    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the generator's logits, (n, vocabulary), and the discriminator's, (rows, length).

        No gradient flows from the discriminator to the generator through the sampled tokens.
        """
        import torch

        inputs, positions, labels = model_inputs(batch), batch["places"], batch["labels"]
        generator, discriminator = cast("Any", model.generator), cast("Any", model.discriminator)
        masked = predict_at(generator, generator.encode(**inputs), positions)
        with torch.no_grad():
            samples = sample_from_logits(masked, batch["uniforms"])
        corrupted = _scatter(inputs["input_ids"], positions, samples)
        original = torch.zeros_like(corrupted, dtype=torch.bool)
        replaced = _scatter(original, positions, samples != labels)
        hidden = discriminator.encode(**{**inputs, "input_ids": corrupted})
        detected = discriminator.scores(hidden, inputs.get("position_ids")).float()
        return Outputs({MASKED_LM: masked, REPLACED_TOKEN: detected}, {REPLACED_TOKEN: replaced})

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the generator's and the discriminator's cross-entropy."""
        generator = super().loss(outputs, batch)
        discriminator = discriminator_loss(
            outputs.logits[REPLACED_TOKEN],
            outputs.labels[REPLACED_TOKEN],
            batch["document_ids"] != 0,
        )
        return LossOutput(
            sums=generator.sums | discriminator.sums,
            metrics=discriminator.metrics | {"generator_accuracy": generator.metrics["accuracy"]},
        )


def _scatter(array: "Tensor", positions: "Tensor", values: "Tensor") -> "Tensor":
    """Return an array, (rows, length), with other values at some flattened positions."""
    return array.flatten().index_copy(0, positions, values).view_as(array)


def discriminator_loss(logits: "Tensor", replaced: "Tensor", is_token: "Tensor") -> LossOutput:
    """Compute the binary cross-entropy of replaced-token detection, and its metrics.

    Args:
        logits: (rows, length), float32; above 0 where a token is predicted to be replaced.
        replaced: (rows, length), bool, the labels.
        is_token: (rows, length), bool; false for padding.

    Returns:
        The loss, and as metrics the accuracy over all, over replaced and over original
        tokens; the area under the ROC curve (``area_under_curve``, over the pairs of one
        micro-batch, see ``zoo.objectives.losses.auc``); the mean predicted probability of
        replacement of replaced and of original tokens; and the fraction of replaced tokens. Early
        in training every token is predicted to be original, which most are: the area and the two
        probabilities show progress before the accuracy does.
    """
    from torch.nn import functional as F

    losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    detached = logits.detach()
    correct, probability = (detached > 0) == replaced, detached.sigmoid()
    original = is_token & ~replaced
    return LossOutput(
        sums={REPLACED_TOKEN: (losses * is_token).sum()},
        metrics={
            "accuracy": ((correct & is_token).sum(), is_token.sum()),
            "accuracy_replaced": ((correct & replaced).sum(), replaced.sum()),
            "accuracy_original": ((correct & original).sum(), original.sum()),
            "probability_replaced": ((probability * replaced).sum(), replaced.sum()),
            "probability_original": ((probability * original).sum(), original.sum()),
            "area_under_curve": auc_counts(detached, replaced, original),
            "replaced": (replaced.sum(), is_token.sum()),
        },
    )
