"""DeBERTa, versions 1 to 3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.family import Family, Head
from zoo.hookspecs import hookimpl
from zoo_deberta.config import CONFIG_MAP, FIRST_MAP, SIZES, DebertaConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.export.spec import OnnxSpec
    from zoo.tokenization import SourceFiles
    from zoo.weights import WeightMap


def _head(kind: str, outputs: tuple[str, ...], task: str, summary: str) -> Head:
    names = (f"DebertaV2{kind}", f"Deberta{kind}")
    return Head(names, outputs, (task, "features") if task else ("features",), summary)


_HEADS = {
    "none": _head("Model", ("last_hidden_state",), "embed", "a vector for each token"),
    "masked-lm": _head("ForMaskedLM", ("logits",), "fill-mask", "which token stood there"),
    "replaced-token-detection": Head(
        ("ReplacedTokenDetectionModel",), ("logits",), ("features",), "which tokens were replaced"
    ),
    "pretraining": _head(
        "ForMaskedLM",
        ("logits", "replaced_logits"),
        "fill-mask",
        "masked tokens, and which tokens were replaced",
    ),
    "sequence-classification": _head(
        "ForSequenceClassification",
        ("logits",),
        "classify",
        "classes of a text or a pair, or a number",
    ),
    "token-classification": _head(
        "ForTokenClassification", ("logits",), "classify", "classes of tokens"
    ),
    "question-answering": _head(
        "ForQuestionAnswering",
        ("start_logits", "end_logits"),
        "",
        "where the answer starts and ends",
    ),
}


class Deberta(Family):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "deberta"
    model_types: ClassVar[tuple[str, ...]] = ("deberta-v2", "deberta")
    config_type: ClassVar[type[Config]] = DebertaConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = {"deberta": FIRST_MAP}
    default_checkpoint: ClassVar[str] = "deberta-v3-base"

    def sizes(self) -> Mapping[str, DebertaConfig]:
        """Return the released shapes; version 1's have no version in their names."""
        return SIZES

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model_type(self, config: DebertaConfig) -> str:
        """Return what the Hub calls version 1, or the others."""
        return "deberta-v2" if config.key_bias else "deberta"

    def architecture(self, config: DebertaConfig, head: str) -> str:
        """Return the name of the Hub's class for the version."""
        names = _HEADS[head].architectures
        return names[0] if config.key_bias else names[-1]

    def model(self, config: DebertaConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_deberta.model import build

        return build(config, head)

    def weights(self, config: DebertaConfig, head: str) -> "WeightMap":
        """Return the rules for its tensors."""
        from zoo_deberta.weights import weights

        return weights(config, head)

    def onnx(self, config: DebertaConfig, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes."""
        from zoo.export.spec import OnnxSpec

        tokens, labels = ("batch", "tokens"), len(config.labels)
        masked = {"logits": (*tokens, config.vocab_size)}
        axes: dict[str, dict[str, tuple[str | int, ...]]] = {
            "none": {"last_hidden_state": (*tokens, config.hidden_size)},
            "masked-lm": {**masked},
            "replaced-token-detection": {"logits": tokens},
            "pretraining": {**masked, "replaced_logits": tokens},
            "sequence-classification": {"logits": ("batch", labels)},
            "token-classification": {"logits": (*tokens, labels)},
            "question-answering": {"start_logits": tokens, "end_logits": tokens},
        }
        types = ("token_type_ids",) if config.type_vocab_size else ()
        return OnnxSpec(
            inputs=dict.fromkeys(("input_ids", "attention_mask", *types), tokens),
            outputs=axes[head],
            limits={"tokens": config.max_positions},
        )

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the tokenizer: byte-level BPE in version 1, SentencePiece since."""
        from zoo import tokenization

        kind = "byte_level_bpe" if files.has("merges.txt") else "sentencepiece"
        build = getattr(tokenization, f"{kind}_tokenizer")
        return build(files)  # type: ignore[no-any-return]


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Deberta(),)
