"""Families of text encoders: common configuration, heads, and names of inputs and outputs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from zoo.families.base import Family, Head
from zoo.families.config import TransformerConfig, same_names
from zoo.families.config.keys import COMMON
from zoo.families.config.rope import RopeType, ScaledRotation
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.tokenizers.train import TokenizerTrainSpec

TokenPooling = Literal["mean", "max"]
SentenceHead = Literal["plain", "unit"]

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.families.onnx import OnnxSpec
    from zoo.tokenizers import SourceFiles


class EncoderConfig(TransformerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every text encoder, with the values of most base models as defaults."""

    vocab_size: int = 30522  # number of tokens in the vocabulary
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    # dropout probability of what is added to the residual path, and of the embeddings
    dropout: float = 0.1
    attention_dropout: float = 0.1
    pad_token_id: int | None = 0
    # whether classifiers of texts and tokens read a learned mix of all layers, see
    # ``zoo.nn.layers.scalar_mix``, in place of the last one
    mix: bool = False
    # what a classifier of texts reads in place of the first token: the ``mean`` or ``max`` of all
    # tokens, with those that the tokenizer adds; ``None`` for that token
    pooling: TokenPooling | None = None
    # what a classifier of texts reads in place of the output of the family's pooler: the pooled
    # vector as it is (``plain``), or scaled to unit length (``unit``), as sentence encoders have
    # it; ``None`` for the pooler
    sentence_head: SentenceHead | None = None


class PooledEncoderConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of text encoders with segment types and a pooler."""

    type_vocab_size: int = 2  # number of segment types
    # dropout probability before a classifier; ``None`` for ``dropout``
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True


class RotaryEncoderConfig(
    ScaledRotation, PooledEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The fields of text encoders whose rotary frequencies may be scaled.

    They are those of ``zoo.families.config.rope.RopeConfig``, next to the base of the frequencies.
    """

    rope_type: RopeType = "default"
    rope_factor: float | None = None
    rope_original_max_positions: int | None = None
    rope_beta_fast: float | None = None
    rope_beta_slow: float | None = None
    rope_attention_factor: float | None = None

    def __post_init__(self) -> None:
        """Check that a scaling has a factor."""
        super().__post_init__()
        self.check_rope_fields()


def require_positions(max_positions: int, padding: int) -> None:
    """Check that a table of positions has one for a text after those of padding.

    Args:
        max_positions: number of positions.
        padding: the padding token, which is also its position.

    Raises:
        ValueError: it has none.
    """
    if max_positions - padding - 1 < 1:
        raise ValueError(
            f"max_positions {max_positions} leaves no position for a text: they begin behind "
            f"pad_token_id {padding}"
        )


# Keys of most Hub configurations, and the values of settings that would make a decoder.
KEYS: Mapping[str, str] = {
    **same_names("vocab_size", "intermediate_size", "type_vocab_size"),
    **same_names("layer_norm_eps", "initializer_range", "pad_token_id"),
    **COMMON,
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
}
# The same with the dropout of classifiers.
CLASSIFIER_KEYS: Mapping[str, str] = {**KEYS, "classifier_dropout": "classifier_dropout"}
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
    "summary": "hidden states, and a pooled one of the text",
}
_MASKED = {"logits": "batch tokens vocab_size"}
_CLASSIFIERS = ("sequence-classification", "token-classification", "question-answering")
_CHOICES = dict.fromkeys(("input_ids", "attention_mask"), "batch choices tokens")


def encoder_heads(
    *names: str, pooler: bool = False, without: tuple[str, ...] = ()
) -> dict[str, Head]:
    """Return the heads of text encoders.

    Args:
        *names: prefixes of the Hub's class names, one for each model type.
        pooler: whether the bare backbone has a pooler.
        without: heads that the family does not have.
    """

    multiple_choice = Head(
        tuple(name + "ForMultipleChoice" for name in names),
        {"logits": "batch choices"},
        ("choose",),
        "one of several texts",
        _CHOICES,
    )
    heads = {
        "none": standard_head("none", *names, **(_POOLED if pooler else {})),
        "masked-lm": mlm_head(*(name + "ForMaskedLM" for name in names)),
        **{kind: standard_head(kind, *names) for kind in _CLASSIFIERS},
        "multiple-choice": multiple_choice,
    }
    for name in without:
        del heads[name]
    return heads


def mlm_head(
    *architectures: str,
    summary: str = "masked tokens",
    tasks: tuple[str, ...] = (),
    **outputs: str,
) -> Head:
    """Return a head for masked language modelling.

    Args:
        *architectures: see ``Head``.
        summary: see ``Head``.
        tasks: further tasks.
        **outputs: further outputs with their axes; see ``Head``.
    """
    return Head(architectures, _MASKED | outputs, ("fill-mask", "features", *tasks), summary)


def rtd_head(*architectures: str) -> Head:
    """Return a head for replaced-token detection."""
    tokens = {"logits": "batch tokens"}
    return Head(architectures, tokens, ("features",), "replaced tokens")


class EncoderFamily(Family):
    """A family of text encoders.

    Attributes:
        named_heads: the heads by name.
    """

    named_heads: ClassVar[Mapping[str, Head]]

    @override
    def heads(self) -> Mapping[str, Head]:
        return self.named_heads

    def inputs(self, config: Any) -> tuple[str, ...]:
        """Return the names of the model's inputs; with token types if there are several."""
        types = getattr(config, "type_vocab_size", 0) > 1  # of one type, all tokens have it
        return ("input_ids", "attention_mask", *(["token_type_ids"] if types else []))

    @override
    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        spec = super().onnx(config, head)
        absent = "" if getattr(config, "pooler", False) else "pooler_output"
        return replace(
            spec,
            inputs=dict.fromkeys(self.inputs(config), spec.inputs["input_ids"]),
            outputs={name: axes for name, axes in spec.outputs.items() if name != absent},
        )


class ByteLevelFamily(EncoderFamily):
    """A family of text encoders with a byte-level BPE tokenizer."""

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import byte_level_bpe_tokenizer

        return byte_level_bpe_tokenizer(files, roles=self.special_tokens)


class WordPieceFamily(EncoderFamily):
    """A family of text encoders with a WordPiece tokenizer, ``[CLS]`` and ``[SEP]``."""

    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "wordpiece": TokenizerTrainSpec(
            ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase=True
        )
    }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import wordpiece_tokenizer

        return wordpiece_tokenizer(files)
