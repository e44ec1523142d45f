"""What families of text encoders share: configuration, heads, names of inputs and outputs.

A text encoder is an embedding, a stack of Transformer blocks in which every token sees all
others, and a head. Its rules for weights are in ``zoo.weights.encoder_rules``, its modules in
``zoo.nn.encoder``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zoo.families.base import Family, Head
from zoo.families.config import Activation, Config, same_names
from zoo.families.config.keys import COMMON
from zoo.families.heads import standard_head
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.families.onnx import OnnxSpec
    from zoo.tokenizers import SourceFiles


class EncoderConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape that every text encoder has; the defaults are those of most base models.

    Attributes:
        vocab_size: rows of the token embedding.
        hidden_size: width of every token's vector between blocks.
        num_layers: encoder blocks.
        num_heads: attention heads in each; they share ``hidden_size``.
        intermediate_size: inner width of the feed-forward networks.
        max_positions: rows of the position embedding.
        activation: of the feed-forward networks.
        dropout: probability of dropping an element of a block's output in training.
        attention_dropout: probability of dropping an attention weight in training.
        initializer_range: deviation of fresh weights.
        pad_token_id: the token that fills up short rows, or ``None``.
        tie_embeddings: score masked tokens against the token embeddings.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    tie_embeddings: bool = True

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads

    @classmethod
    def sized(cls, layers: int, width: int, **changes: Any) -> Self:
        """Return a usual shape: heads 64 wide, feed-forward networks four times as wide as blocks.

        Args:
            layers: how many blocks.
            width: of the blocks.
            **changes: fields that are not as usual.
        """
        usual = {"num_heads": width // 64, "intermediate_size": 4 * width}
        return cls(**{"num_layers": layers, "hidden_size": width, **usual, **changes})


# The keys that most Hub configurations share, and the settings that make a decoder of an encoder.
KEYS: Mapping[str, str] = {
    **same_names("vocab_size", "intermediate_size", "type_vocab_size"),
    **same_names("layer_norm_eps", "initializer_range", "pad_token_id"),
    **COMMON,
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
}
FIXED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (None, False),
}


_POOLED: Mapping[str, Any] = {
    "outputs": {
        "last_hidden_state": "batch tokens hidden_size",
        "pooler_output": "batch hidden_size",
    },
    "summary": "a vector for each token, and one for the text",
}
_MASKED = {"logits": "batch tokens vocab_size"}
_CLASSIFIERS = ("sequence-classification", "token-classification", "question-answering")
_CHOICES = dict.fromkeys(("input_ids", "attention_mask"), "batch choices tokens")


def encoder_heads(*names: str, pooler: bool = False) -> dict[str, Head]:
    """Return the heads that every text encoder has.

    Args:
        *names: what the Hub's class names begin with, one for each model type.
        pooler: whether the bare trunk gives a vector for the text, too.
    """

    of_texts = Head(
        tuple(name + "ForMultipleChoice" for name in names),
        {"logits": "batch choices"},
        (),
        "which of several texts it is",
        _CHOICES,
    )
    return {
        "none": standard_head("none", *names, **(_POOLED if pooler else {})),
        "masked-lm": mlm_head(*(name + "ForMaskedLM" for name in names)),
        **{kind: standard_head(kind, *names) for kind in _CLASSIFIERS},
        "multiple-choice": of_texts,
    }


def mlm_head(*architectures: str, summary: str = "which token stood there", **outputs: str) -> Head:
    """Return a head that scores masked tokens.

    Args:
        *architectures: see ``Head``.
        summary: see ``Head``.
        **outputs: what the model says besides, see ``Head``.
    """
    return Head(architectures, _MASKED | outputs, ("fill-mask", "features"), summary)


def rtd_head(*architectures: str) -> Head:
    """Return a head that tells replaced tokens."""
    tokens = {"logits": "batch tokens"}
    return Head(architectures, tokens, ("features",), "which tokens were replaced")


class EncoderFamily(Family):
    """A family of text encoders: inputs and outputs follow from its heads and configuration.

    Attributes:
        named_heads: what ``heads`` returns.
    """

    named_heads: ClassVar[Mapping[str, Head]]

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return self.named_heads

    def inputs(self, config: Any) -> tuple[str, ...]:
        """Name the inputs of the model; here with token types where there are any."""
        types = getattr(config, "type_vocab_size", 0) > 0
        return ("input_ids", "attention_mask", *(["token_type_ids"] if types else []))

    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes."""
        spec = super().onnx(config, head)
        absent = "" if getattr(config, "pooler", False) else "pooler_output"
        return replace(
            spec,
            inputs=dict.fromkeys(self.inputs(config), spec.inputs["input_ids"]),
            outputs={name: axes for name, axes in spec.outputs.items() if name != absent},
        )


class WordPieceFamily(EncoderFamily):
    """A family of text encoders that read word pieces between ``[CLS]`` and ``[SEP]``."""

    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "wordpiece": TokenizerTrainSpec(
            ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase=True
        )
    }

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenizers import wordpiece_tokenizer

        return wordpiece_tokenizer(files)
