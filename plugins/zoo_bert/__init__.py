"""BERT (Devlin et al. 2018, arXiv:1810.04805)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.family import Family, Head
from zoo.hookspecs import hookimpl
from zoo_bert.config import CONFIG_MAP, SIZES, BertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.export.spec import OnnxSpec
    from zoo.tokenization import SourceFiles
    from zoo.weights import WeightMap

# architectures, outputs, tasks, summary
_HEADS = {
    "none": Head(
        ("BertModel",),
        ("last_hidden_state", "pooler_output"),
        ("embed", "features"),
        "a vector for each token, and one for the text",
    ),
    "masked-lm": Head(
        ("BertForMaskedLM",), ("logits",), ("fill-mask", "features"), "which token stood there"
    ),
    "pretraining": Head(
        ("BertForPreTraining",),
        ("logits", "seq_relationship_logits"),
        ("fill-mask", "features"),
        "masked tokens, and whether the second text follows the first",
    ),
    "sequence-classification": Head(
        ("BertForSequenceClassification",),
        ("logits",),
        ("classify", "features"),
        "classes of a text or a pair, or a number",
    ),
    "token-classification": Head(
        ("BertForTokenClassification",), ("logits",), ("classify", "features"), "classes of tokens"
    ),
    "question-answering": Head(
        ("BertForQuestionAnswering",),
        ("start_logits", "end_logits"),
        ("features",),
        "where the answer starts and ends",
    ),
}


class Bert(Family):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "bert"
    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    config_type: ClassVar[type[Config]] = BertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bert-base-uncased"

    def sizes(self) -> Mapping[str, BertConfig]:
        """Return the released shapes, with the vocabulary of the uncased English models unless
        the name says another.
        """
        return SIZES

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model(self, config: BertConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_bert.model import build

        return build(config, head)

    def weights(self, config: BertConfig, head: str) -> "WeightMap":
        """Return the rules for its tensors."""
        from zoo_bert.weights import weights

        return weights(config, head)

    def onnx(self, config: BertConfig, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes."""
        from zoo.export.spec import OnnxSpec

        tokens, labels = ("batch", "tokens"), len(config.labels)
        axes: dict[str, dict[str, tuple[str | int, ...]]] = {
            "none": {"last_hidden_state": (*tokens, config.hidden_size)}
            | ({"pooler_output": ("batch", config.hidden_size)} if config.pooler else {}),
            "masked-lm": {"logits": (*tokens, config.vocab_size)},
            "pretraining": {
                "logits": (*tokens, config.vocab_size),
                "seq_relationship_logits": ("batch", 2),
            },
            "sequence-classification": {"logits": ("batch", labels)},
            "token-classification": {"logits": (*tokens, labels)},
            "question-answering": {"start_logits": tokens, "end_logits": tokens},
        }
        return OnnxSpec(
            inputs=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), tokens),
            outputs=axes[head],
            limits={"tokens": config.max_positions},
        )

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenization import wordpiece_tokenizer

        return wordpiece_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bert(),)
