"""Weight rules of ELECTRA: the Hub's names and ours."""

from collections.abc import Collection

from zoo.weights import Ignore, WeightMap
from zoo.weights.encoder_rules import backbone_rules
from zoo.weights.head_rules import HeadNames, MaskedNames, dense_rules, with_head
from zoo.weights.releases import ReleaseTensor, tf_encoder_name
from zoo_electra.config import ElectraConfig

_NAMES = HeadNames(
    masked=MaskedNames(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        decoder="generator_lm_head",
        bias="",
    ),
    text=("classifier.dense", "classifier.out_proj"),
    choice=("sequence_summary.summary", "classifier"),
)

# The released base and large discriminators have it nevertheless.
_UNUSED = Ignore(
    "electra.embeddings_project.{p}", "nothing is mapped: embeddings are as wide as blocks"
)


def weights(config: ElectraConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    base = backbone_rules(config, "electra.")
    if config.embedding_size == config.hidden_size:
        base = base.plus(drops=[_UNUSED])
    if head == "replaced-token-detection":
        prefix = "discriminator_predictions"
        return base.plus(*dense_rules(config, f"{prefix}.dense", f"{prefix}.dense_prediction", 1))
    return with_head(base, config, head, _NAMES)


def from_tensorflow(names: Collection[str], head: str) -> dict[str, ReleaseTensor]:
    """Return name -> tensor for Google's release (google-research/electra, run_pretraining.py).

    A file has both models. ``masked-lm`` is the head of the generator; all other heads are on the
    discriminator.
    """
    # The generator is under ``generator/``. It shares the embeddings of the discriminator, which
    # are under ``electra/``, unless it has its own. If nothing is under ``generator/``, the two
    # share all blocks.
    own_parts = {name.split("/")[1] for name in names if name.startswith("generator/")}
    is_generator = head == "masked-lm"
    return {name: _release_tensor(name, own_parts, generator=is_generator) for name in names}


def _release_tensor(name: str, own_parts: Collection[str], *, generator: bool) -> ReleaseTensor:
    """Return the Hub's counterpart of a tensor.

    Args:
        name: name of the tensor in the release.
        own_parts: parts of the generator that it does not share with the discriminator.
        generator: whether the generator is read.
    """
    if name == "temperature":
        return ReleaseTensor(name, reason="divides the generator's logits in training")
    network, _, inner_name = name.partition("/")
    part = inner_name.partition("/")[0]
    is_shared = not own_parts or (part == "embeddings" and part not in own_parts)
    belongs_to_model = {
        "electra": is_shared or not generator,
        "discriminator_predictions": not generator,
        "generator": generator,
        "generator_predictions": generator,
    }
    hub_name = f"electra/{inner_name}" if network == "generator" else name
    hub_name = hub_name.replace("_predictions/dense_1/", "_predictions/dense_prediction/")
    hub_name = hub_name.replace(
        "generator_predictions/output_bias", "generator_lm_head/output_bias"
    )
    tensor = tf_encoder_name(name, hub_name)
    if tensor.reason or belongs_to_model.get(network, True):
        return tensor
    reason = "belongs to the generator; the head is the discriminator's"
    if generator:
        reason = "belongs to the discriminator; the head is the generator's"
    return ReleaseTensor(name, reason=reason)
