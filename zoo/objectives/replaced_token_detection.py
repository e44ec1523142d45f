"""Replaced-token detection (Clark et al. 2020, arXiv:2003.10555)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec
import numpy as np

from zoo.errors import UsageError
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.losses.auc import auc_counts
from zoo.objectives.losses.predictions import encode_at, predict
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, MaskedOptions, model_inputs
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.nn.heads import VocabularyProjection
    from zoo.objectives.examples.vocabulary import TokenizerView

REPLACED_TOKEN = "replaced-token-detection"  # the loss term, and the head
REPLACED = "replaced"  # which tokens are not the original ones
REPLACED_LABELS = "replaced_labels"  # 1 for these tokens, 0 for others, ``IGNORED`` for padding
MASKED_IDS = "masked_ids"  # tokens that the generator reads
EmbeddingSharing = Literal["tied", "gradient-disentangled", "none"]


class ReplacedOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of replaced-token detection, in addition to masking's."""

    mask_token_prob: float = 0.85
    random_token_prob: float = 0.0
    # Hidden size of the generator, as a fraction of the discriminator's.
    generator_width_ratio: float = 0.25
    # Number of layers of the generator, as a fraction of the discriminator's.
    generator_depth_ratio: float = 1.0
    # Weight of the discriminator's loss; the generator's has weight 1.
    discriminator_weight: float = 50.0
    # Input embeddings of the discriminator: ``tied`` to the generator's, ``gradient-disentangled``
    # (see ``zoo.objectives.losses.embedding_sharing``), or ``none`` for separate tables.
    embedding_sharing: EmbeddingSharing = "tied"
    # Fraction of the steps, the first ones, in which only the generator is trained; the
    # discriminator then starts from its weights (section 3.2 of the paper, "two-stage"; there, the
    # generator is not trained any further). The loss of the discriminator is 0 until then. The
    # generator must have the discriminator's sizes.
    generator_fraction: float = 0.0
    # What the generator's logits are divided by before sampling (configure_pretraining.py). Above
    # 1, samples are more random, and easier to detect.
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("generator_width_ratio", "generator_depth_ratio", "discriminator_weight")
        for name in (*positive, "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, which is not positive")
        if not 0 <= self.generator_fraction < 1:
            raise ValueError(
                f"generator_fraction is {self.generator_fraction}, which is not in [0, 1)"
            )


def generator_config(config: Any, options: ReplacedOptions) -> Any:
    """Return the generator's configuration (``get_generator_config`` of run_pretraining.py)."""
    # In a generator of a different width, attention heads have size 64, at least one of them; the
    # intermediate size is four times the hidden size. (In one of the same width, the sizes of the
    # discriminator are kept, which are these in all published models.) The embedding size is kept,
    # if the configuration has one.
    width = round(config.hidden_size * options.generator_width_ratio)
    changes = {"num_layers": max(1, round(config.num_layers * options.generator_depth_ratio))}
    if width != config.hidden_size:
        heads = max(1, width // 64)
        changes |= {"hidden_size": width, "intermediate_size": 4 * width, "num_heads": heads}
    try:
        generator = msgspec.convert({**msgspec.to_builtins(config), **changes}, type(config))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            f"the generator: {error}", "choose another objective_args.generator_width_ratio"
        ) from error
    has_same_width = embedding_width(generator) == embedding_width(config)
    if options.embedding_sharing != "none" and not has_same_width:
        raise UsageError(
            f"embeddings of a generator that is {width} wide cannot be shared with a discriminator "
            f"that is {config.hidden_size} wide",
            "--set objective_args.generator_width_ratio=1.0, or "
            "--set objective_args.embedding_sharing=none",
        )
    return generator


def embedding_width(config: Any) -> int:
    """Return the size of the token embeddings."""
    width: int = getattr(config, "embedding_size", config.hidden_size)
    return width


class ReplacedTokenDetection(MaskedLanguageModelling):
    """Trains a discriminator to detect the tokens that a generator replaced."""

    # A generator is trained on masked language modelling. Its samples replace the masked tokens,
    # and a discriminator predicts of every token whether it was replaced. A sample that equals the
    # original token counts as original. Both are trained jointly, each on its own loss: no gradient
    # flows through the samples. The discriminator is the final model.
    #
    # Where the paper and the released code differ, the code is followed:
    #
    # * Of the selected tokens, 85 % become the mask token, and the rest is unchanged
    #   (pretrain_helpers.py; the paper masks all). All of them are predicted and sampled.
    # * All input embeddings are shared, token types and the layer norm included (modeling.py; the
    #   paper names token and position embeddings).
    # * The discriminator's loss includes special tokens, but not padding (run_pretraining.py). (Its
    #   ``disc_auc``, of 200 thresholds, counts padding as original tokens; here, it does not
    #   count.)
    #
    # Not followed: it draws the masked positions with replacement (pretrain_helpers.py, ``mask``).
    # A position that is drawn twice counts twice in the generator's loss, and gets the mean of two
    # sampled token ids (``scatter_update``), which no generator chose. Section 3.1 of the paper
    # selects a set.
    #
    # The released code samples with Gumbel noise on all logits. Here, each sample takes one uniform
    # number from the example, so that the split of rows over batches and devices does not change
    # it.

    name: ClassVar[str] = REPLACED_TOKEN
    head: ClassVar[str] = REPLACED_TOKEN
    scores_all_tokens: ClassVar[bool] = True
    options_type: ClassVar[type[Options]] = ReplacedOptions
    from_scratch_options: ClassVar[tuple[str, ...]] = ("generator_fraction",)

    def __init__(
        self, vocabulary: "TokenizerView", config: "Config", length: int, options: Any = None
    ) -> None:
        super().__init__(vocabulary, config, length, options)
        self.generator_config = generator_config(config, self.options)
        self._trains_only_generator = False
        if self.options.generator_fraction:
            require_same_sizes(self.generator_config, config)

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        return {MASKED_LM: 1.0, REPLACED_TOKEN: self.options.discriminator_weight}

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        # The discriminator's labels follow from samples, not from the text.
        return {**super().visible_labels, REPLACED_TOKEN: 1.0}

    @classmethod
    @override
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        if MaskedLanguageModelling.head not in family.heads():
            return f"{family.name} has no head {MaskedLanguageModelling.head!r} for a generator"
        return super().unsupported_reason(family, config)

    @override
    def model(self, family: "Family", config: "Config") -> "nn.Module":
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        generator = family.model(self.generator_config, MaskedLanguageModelling.head)
        discriminator = family.model(config, self.head)
        return GeneratorDiscriminator(generator, discriminator, self.options.embedding_sharing)

    @override
    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        assert isinstance(model, GeneratorDiscriminator), "what self.learner built"
        return {
            "model": TrainedModel(model.plain_discriminator(), self.config, self.head),
            "generator": TrainedModel(
                model.generator, self.generator_config, MaskedLanguageModelling.head
            ),
        }

    @override
    def after_load(
        self, model: "nn.Module", models: Mapping[str, TrainedModel], loaded: Collection[str]
    ) -> "list[Tensor]":
        """Set the discriminator's embeddings that are sums of two tables."""
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        assert isinstance(model, GeneratorDiscriminator), "what self.learner built"
        return model.after_load(models["model"].module, both="generator" not in loaded)

    @override
    def begin_step(self, model: "nn.Module", step: int, max_steps: int) -> None:
        """Select the stage; between the two, copy the generator to the discriminator."""
        # A run that resumes at this step copies again, from the same weights.
        from zoo.objectives.losses.embedding_sharing import GeneratorDiscriminator

        generator_steps = self._generator_steps(max_steps)
        self._trains_only_generator = step < generator_steps
        if step and step == generator_steps:
            assert isinstance(model, GeneratorDiscriminator), "made by self.model"
            model.copy_generator()

    def _generator_steps(self, max_steps: int) -> int:
        fraction: float = self.options.generator_fraction
        return min(round(fraction * max_steps), max_steps - 1)

    @override
    def stage(self, step: int, max_steps: int) -> str:
        generator_steps = self._generator_steps(max_steps)
        if not generator_steps:
            return ""
        if step < generator_steps:
            return "the generator only"
        return "generator and discriminator"

    @override
    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row with masked tokens, and one uniform number per selected token."""
        row = super().mask_row(packed, rng)
        uniforms = rng.random(int(row.counts[MASKED_LM]), dtype=np.float32)
        return Example(
            row.arrays,
            values={**row.values, "uniforms": uniforms},
            positions=row.positions,
            counts={**row.counts, REPLACED_TOKEN: int(np.count_nonzero(packed.document_ids))},
        )

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        return super().max_values(batch) | {"uniforms": self.max_masked}

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of generator, (n, vocabulary), and discriminator, (rows, length)."""
        # No gradient flows from the discriminator to the generator through the sampled tokens.
        import torch

        from zoo.nn.dtypes import at_least_float32
        from zoo.objectives.losses.cross_entropy import IGNORED
        from zoo.objectives.losses.sampling import sample_tokens

        inputs = model_inputs(batch)
        positions = batch["label_positions"]
        labels = batch["labels"]
        generator = cast("Any", model.generator)
        discriminator = cast("Any", model.discriminator)
        masked = predict(generator, encode_at(generator, inputs, positions))
        if self._trains_only_generator and model.training:
            return Outputs({MASKED_LM: masked, REPLACED_TOKEN: zero_of(discriminator)})
        with torch.no_grad():
            samples = sample_tokens(masked, batch["uniforms"], self.options.temperature)
        # What static shapes add to the positions is written behind the rows.
        counted = labels != IGNORED
        positions = torch.where(counted, positions, inputs["input_ids"].numel())
        corrupted = _scatter(inputs["input_ids"], positions, samples)
        original = torch.zeros_like(corrupted, dtype=torch.bool)
        replaced = _scatter(original, positions, samples != labels)
        is_padding = batch["document_ids"] == 0
        hidden = discriminator.encode(**{**inputs, "input_ids": corrupted})
        detected = at_least_float32(discriminator.scores(hidden, inputs.get("position_ids")))
        return Outputs(
            {MASKED_LM: masked, REPLACED_TOKEN: detected},
            {REPLACED_TOKEN: replaced},
            inputs={
                "input_ids": corrupted,
                MASKED_IDS: inputs["input_ids"],
                REPLACED: replaced,
                REPLACED_LABELS: replaced.long().masked_fill(is_padding, IGNORED),
            },
        )

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {**super().label_tensors, REPLACED_TOKEN: REPLACED_LABELS}

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        return (REPLACED_TOKEN,)

    @override
    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor | VocabularyProjection]":
        return {MASKED_LM: outputs.logits[MASKED_LM], **detection_logits(outputs, batch)}

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        generator = super().loss(outputs, batch)
        metrics = {"generator_accuracy": generator.metrics["accuracy"]}
        if REPLACED_TOKEN not in outputs.labels:  # only the generator is trained
            return LossOutput(
                generator.sums | {REPLACED_TOKEN: outputs.logits[REPLACED_TOKEN]},
                metrics,
                row_sums=generator.row_sums,
            )
        discriminator = discriminator_loss(
            outputs.logits[REPLACED_TOKEN],
            outputs.labels[REPLACED_TOKEN],
            batch["document_ids"] != 0,
        )
        row_sums = {}
        if generator.row_sums:
            row_sums = generator.row_sums | discriminator.row_sums
        return LossOutput(
            sums=generator.sums | discriminator.sums,
            metrics=discriminator.metrics | metrics,
            row_sums=row_sums,
        )


def require_same_sizes(generator: Any, discriminator: Any) -> None:
    """Check that the weights of a generator can be copied to the discriminator."""
    for name in ("hidden_size", "num_layers"):
        generator_size = getattr(generator, name)
        discriminator_size = getattr(discriminator, name)
        if generator_size != discriminator_size:
            raise UsageError(
                f"generator_fraction: {name} is {generator_size} in the generator and "
                f"{discriminator_size} in the discriminator, which starts from its weights",
                "--set objective_args.generator_width_ratio=1.0 "
                "--set objective_args.generator_depth_ratio=1.0",
            )


def zero_of(module: "nn.Module") -> "Tensor":
    """Return 0 as a function of all parameters, whose gradients are then zeros."""
    # DDP waits for a gradient of each parameter, and optimizers count the steps of those that have
    # one.
    import torch

    sums = []
    for parameter in module.parameters():
        values: Any = parameter
        if hasattr(parameter, "to_local"):  # FSDP shards it, and this process has one shard.
            values = parameter.to_local()
        sums.append(values.sum())
    return 0 * torch.stack(sums).sum()


def _scatter(array: "Tensor", positions: "Tensor", values: "Tensor") -> "Tensor":
    """Return a copy of an array, (rows, length), with new values at flattened positions.

    Values at the position behind the last one are dropped.
    """
    import torch

    longer = torch.cat((array.flatten(), array.new_zeros(1)))
    return longer.index_copy_(0, positions, values)[:-1].view_as(array)


def detection_logits(outputs: Outputs, batch: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the discriminator's logits of original, which are 0, and replaced, by loss term.

    They are (n, 2), of all tokens but padding.
    """
    import torch

    detected = outputs.logits[REPLACED_TOKEN][batch["document_ids"] != 0]
    return {REPLACED_TOKEN: torch.stack([torch.zeros_like(detected), detected], dim=-1)}


def discriminator_loss(logits: "Tensor", replaced: "Tensor", is_token: "Tensor") -> LossOutput:
    """Compute the binary cross-entropy of replaced-token detection, and its metrics.

    Args:
        logits: above 0 where a token is predicted to be replaced, (rows, length), float32.
        replaced: the labels, (rows, length), bool.
        is_token: false for padding, (rows, length), bool.
    """
    # Early in training every token is predicted to be original, which most are: the area under the
    # ROC curve, over the pairs of one micro-batch, and the mean predicted probabilities of replaced
    # and of original tokens show progress before the accuracy does.
    from torch.nn import functional as F

    losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    losses = losses * is_token
    detached = logits.detach()
    correct = (detached > 0) == replaced
    probability = detached.sigmoid()
    original = is_token & ~replaced
    return LossOutput(
        sums={REPLACED_TOKEN: losses.sum()},
        metrics={
            "accuracy": ((correct & is_token).sum(), is_token.sum()),
            "accuracy_replaced": ((correct & replaced).sum(), replaced.sum()),
            "accuracy_original": ((correct & original).sum(), original.sum()),
            "probability_replaced": ((probability * replaced).sum(), replaced.sum()),
            "probability_original": ((probability * original).sum(), original.sum()),
            "area_under_curve": auc_counts(detached, replaced, original),
            "replaced": (replaced.sum(), is_token.sum()),
        },
        row_sums={REPLACED_TOKEN: losses.detach().sum(-1)},
    )
