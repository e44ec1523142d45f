"""Families of encoder-decoders: common configuration, heads, tokenizer and inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Activation, Config, TranslatedConfig, same_names
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Seq2SeqConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of encoder-decoders with absolute positions.

    The fields of the decoder are called as in transformers; those of the encoder as in other
    families.
    """

    vocab_size: int = 50265  # number of tokens in the vocabulary
    hidden_size: int = 1024  # width of the hidden state
    num_layers: int = 12  # number of blocks of the encoder
    num_heads: int = 16  # number of attention heads per block of the encoder
    intermediate_size: int = 4096  # inner width of the feed-forward networks of the encoder
    decoder_layers: int = 12  # number of blocks of the decoder
    decoder_attention_heads: int = 16  # number of attention heads per block of the decoder
    decoder_ffn_dim: int = 4096  # inner width of the feed-forward networks of the decoder
    max_positions: int = 1024  # largest number of tokens of a source, and of a target
    activation: Activation = "gelu"  # activation function of the feed-forward networks
    # dropout probability of what is added to the residual path, and of the embeddings
    dropout: float = 0.1
    attention_dropout: float = 0.0  # dropout probability of the attention weights
    activation_dropout: float = 0.0  # dropout probability within the feed-forward networks
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms, which no file of the Hub has
    initializer_range: float = 0.02  # standard deviation of initial weights
    scale_embedding: bool = False  # multiply token embeddings by the root of ``hidden_size``
    # encoder and decoder have one table of token embeddings, which also are the output embeddings;
    # else each has a table of its own
    tie_embeddings: bool = True
    logits_bias: bool = True  # whether the logits have a bias, which is not trained
    pad_token_id: int = 1  # the padding token
    eos_token_id: int = 2  # the token that ends a text
    decoder_start_token_id: int = 2  # the first input token of the decoder

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.decoder_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} does not split into decoder_attention_heads "
                f"{self.decoder_attention_heads}"
            )

    @classmethod
    def sized(cls, layers: int, width: int, **changes: Any) -> Self:
        """Return a configuration with equal stacks, heads of width 64 and an FFN of four widths.

        Args:
            layers: number of blocks of encoder and of decoder.
            width: width of the hidden state.
            **changes: other fields.
        """
        heads = width // 64
        inner = 4 * width
        encoder = {"num_layers": layers, "num_heads": heads, "intermediate_size": inner}
        decoder = {
            "decoder_layers": layers,
            "decoder_attention_heads": heads,
            "decoder_ffn_dim": inner,
        }
        return cls(**{"hidden_size": width, **encoder, **decoder, **changes})


# Keys of the Hub's configurations, and their values where several are known but one is implemented.
KEYS: Mapping[str, str] = {
    **same_names("vocab_size", "decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"),
    **same_names("dropout", "attention_dropout", "activation_dropout", "scale_embedding"),
    **same_names("pad_token_id", "eos_token_id", "decoder_start_token_id"),
    "d_model": "hidden_size",
    "encoder_layers": "num_layers",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "activation_function": "activation",
    "init_std": "initializer_range",
    "tie_word_embeddings": "tie_embeddings",
}
FIXED: Mapping[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (True, None),
    "is_decoder": (False, None),
    "add_bias_logits": (None, False),
}


def relative_keys(
    *, pre_norm: bool, embedding_norm: bool, sinusoidal: bool
) -> dict[str, tuple[Any, ...]]:
    """Return entries of ``fixed``: settings of the implementation before transformers 3.4.

    All relatives of its first encoder-decoder had that implementation, and files still state them.

    Args:
        pre_norm: whether norms precede the parts of a block and follow the last block.
        embedding_norm: whether norms follow the embeddings.
        sinusoidal: whether positions are not learned.
    """
    return {
        "normalize_before": (None, pre_norm),
        "normalize_embedding": (None, embedding_norm),
        "add_final_layer_norm": (None, pre_norm),
        "static_position_embeddings": (None, sinusoidal),
    }


IGNORED: Mapping[str, str] = {
    "encoder_layerdrop": "a training setting; all layers run",
    "decoder_layerdrop": "a training setting; all layers run",
    "classif_dropout": "an earlier name of `classifier_dropout`, which transformers ignores",
    "force_bos_token_to_be_generated": "the older name of `forced_bos_token_id`, used if there is "
    "no `generation_config.json`",
    "save_step": "provenance",
}

SENTINELS = 100  # tokens that stand for masked spans
INPUTS: Mapping[str, str] = {
    "input_ids": "batch tokens",
    "attention_mask": "batch tokens",
    "decoder_input_ids": "batch decoder_tokens",
}


def seq2seq_heads(*names: str) -> dict[str, Head]:
    """Return the heads of an encoder-decoder that take a target: the backbone and the LM.

    Args:
        *names: prefixes of the Hub's class names, one for each model type.
    """
    hidden_states = {
        "last_hidden_state": "batch decoder_tokens hidden_size",
        "encoder_last_hidden_state": "batch tokens hidden_size",
    }
    architectures = tuple(f"{name}Model" for name in names)
    return {
        "none": Head(
            architectures, hidden_states, (), "hidden states of source and target", INPUTS
        ),
        "seq2seq-lm": seq2seq_lm_head(*(f"{name}ForConditionalGeneration" for name in names)),
    }


def seq2seq_lm_head(*architectures: str) -> Head:
    """Return a head that predicts a target text.

    Args:
        *architectures: see ``Head``.
    """
    outputs = {"logits": "batch decoder_tokens vocab_size"}
    return Head(architectures, outputs, ("seq2seq", "score"), "generation of a target text", INPUTS)


def source_heads(*names: str) -> dict[str, Head]:
    """Return the heads of an encoder-decoder that read the source as their target.

    Args:
        *names: prefixes of the Hub's class names, one for each model type.
    """
    kinds = "sequence-classification", "question-answering"
    return {kind: standard_head(kind, *names) for kind in kinds}


class Seq2SeqFamily(Family):
    """A family of encoder-decoders with a SentencePiece tokenizer, whose texts end in ``</s>``.

    Attributes:
        named_heads: the heads by name.
        adapter_targets: see ``Family``; the names are fairseq's.
        begins_with_language: whether the first token of the decoder is a language, which depends
            on the text, so that a file may state none.
    """

    named_heads: ClassVar[Mapping[str, Head]]
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_proj", "k_proj", "v_proj", "fc2"
    )
    begins_with_language: ClassVar[bool] = False
    special_tokens: ClassVar[Mapping[str, str]] = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("<pad>", "</s>", "<unk>"), sentinels=SENTINELS)
    }

    @override
    def heads(self) -> Mapping[str, Head]:
        """Return the heads by name; those with a target have ``decoder_input_ids``."""
        return self.named_heads

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        start = "decoder_start_token_id"
        if self.begins_with_language and hub.get(start) is None:
            hub = {key: value for key, value in hub.items() if key != start}
        return super().from_hub(hub, location)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer, with the sentinels of masked spans."""
        from zoo.tokenizers import EOS_ONLY, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=EOS_ONLY, sentinels=SENTINELS
        )
