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

# the released base and large discriminators hold it all the same
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
    """Return name -> tensor for Google's release (google-research/electra, run_pretraining.py)."""
    # A file holds both models. ``masked-lm`` is the head of the generator; all other heads are on
    # the discriminator. The generator is under ``generator/``. It shares the embeddings of the
    # discriminator, which are under ``electra/``, unless it has its own; if nothing is under
    # ``generator/``, the two share all blocks
    scopes = {name.split("/")[1] for name in names if name.startswith("generator/")}
    return {name: _released(name, scopes, generator=head == "masked-lm") for name in names}


def _released(name: str, unshared: Collection[str], *, generator: bool) -> ReleaseTensor:
    """Return the Hub's counterpart of a tensor."""
    network, _, rest = name.partition("/")
    part = rest.partition("/")[0]
    shared = not unshared or (part == "embeddings" and part not in unshared)
    wanted = {
        "electra": shared or not generator,
        "discriminator_predictions": not generator,
        "generator": generator,
        "generator_predictions": generator,
    }
    if name == "temperature":
        return ReleaseTensor(name, reason="divides the generator's logits in training")
    spelled = f"electra/{rest}" if network == "generator" else name
    spelled = spelled.replace("_predictions/dense_1/", "_predictions/dense_prediction/")
    spelled = spelled.replace("generator_predictions/output_bias", "generator_lm_head/output_bias")
    tensor = tf_encoder_name(name, spelled)
    if tensor.reason or wanted.get(network, True):
        return tensor
    names = ("discriminator", "generator") if generator else ("generator", "discriminator")
    return ReleaseTensor(name, reason=f"belongs to the {names[0]}; the head is the {names[1]}'s")
