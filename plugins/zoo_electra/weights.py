"""ELECTRA's tensors: the Hub's names and ours."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder import masked_head, trunk
from zoo_electra.config import ElectraConfig


def weights(config: ElectraConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    labels, width = len(config.labels), config.hidden_size
    base = trunk(config, "electra.")

    def dense(inner: str, out: str, outputs: int) -> WeightMap:
        return base.plus(
            Rule(f"{inner}.{{p}}", "head.dense.{p}", (width, width)),
            Rule(f"{out}.{{p}}", "head.out.{p}", (outputs, width)),
        )

    match head:
        case "none":
            return base
        case "masked-lm":
            predictions = "generator_predictions"
            return masked_head(
                base,
                config,
                dense=f"{predictions}.dense",
                norm=f"{predictions}.LayerNorm",
                decoder="generator_lm_head",
            )
        case "replaced-token-detection":
            predictions = "discriminator_predictions"
            return dense(f"{predictions}.dense", f"{predictions}.dense_prediction", 1)
        case "sequence-classification":
            return dense("classifier.dense", "classifier.out_proj", labels)
        case "multiple-choice":
            return dense("sequence_summary.summary", "classifier", 1)
        case "token-classification":
            return base.plus(Rule("classifier.{p}", "head.{p}", (labels, width)))
        case "question-answering":
            return base.plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    raise ValueError(f"ELECTRA has no head {head!r}")
