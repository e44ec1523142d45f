"""T5 and mT5 (Raffel et al. 2019, arXiv:1910.10683; Xue et al. 2020, arXiv:2010.11934)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap, Translation
from zoo.errors import VerificationError
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_t5.config import CONFIG_MAPS, T5Config

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.export.spec import OnnxSpec
    from zoo.tokenization import SourceFiles

# architectures (T5's, then mT5's), outputs, tasks, summary
_HEADS = {
    "none": Head(
        ("T5Model", "MT5Model"),
        ("last_hidden_state", "encoder_last_hidden_state"),
        (),
        "a vector for each token of a source and of a target",
    ),
    "encoder": Head(
        ("T5EncoderModel", "MT5EncoderModel"),
        ("last_hidden_state",),
        ("embed", "features"),
        "the encoder alone: a vector for each token",
    ),
    "seq2seq-lm": Head(
        ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "T5WithLMHeadModel"),
        ("logits",),
        ("seq2seq",),
        "what a text is turned into, token by token",
    ),
    "sequence-classification": Head(
        ("T5ForSequenceClassification", "MT5ForSequenceClassification"),
        ("logits",),
        ("classify", "features"),
        "classes of a text or a pair, or a number",
    ),
    "token-classification": Head(
        ("T5ForTokenClassification", "MT5ForTokenClassification"),
        ("logits",),
        ("classify", "features"),
        "classes of tokens, by the encoder",
    ),
    "question-answering": Head(
        ("T5ForQuestionAnswering", "MT5ForQuestionAnswering"),
        ("start_logits", "end_logits"),
        ("features",),
        "where the answer starts and ends",
    ),
}
_TIE, _SCALE = "tie_word_embeddings", "scale_decoder_outputs"


class T5(Family):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "t5"
    model_types: ClassVar[tuple[str, ...]] = ("t5", "mt5")
    config_type: ClassVar[type[Config]] = T5Config
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["t5"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "t5-small"
    special_tokens: ClassVar[Mapping[str, str]] = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "unigram": NewTokenizer(("<pad>", "</s>", "<unk>"), sentinels=100)
    }
    objectives: ClassVar[Mapping[str, str]] = {"bert-style": "zoo_t5.objectives:BertStyle"}

    def heads(self) -> Mapping[str, Head]:
        """Return the heads; only those for classes, spans and ``encoder`` take a source alone."""
        return _HEADS

    def model_type(self, config: T5Config) -> str:
        """See ``Family``."""
        return config.series

    def architecture(self, config: T5Config, head: str) -> str:
        """See ``Family``."""
        return _HEADS[head].architectures[("t5", "mt5").index(config.series)]

    def from_hub(self, hub: Mapping[str, Any], where: str = "config.json") -> Translation:
        """Translate, where one key follows from another.

        A model whose vectors are not scaled has a table of its own, unless the file has none:
        the Hub's library calls every model tied that it writes, and tells by the scale.

        Raises:
            VerificationError: see ``Family``, or two keys contradict each other.
        """
        hub = dict(hub)
        if hub.get("decoder_start_token_id") is None:
            hub.pop("decoder_start_token_id", None)
        if hub.get("model_type") == "mt5":
            hub[_TIE] = False
        else:
            scaled = hub.setdefault(_SCALE, hub.get(_TIE, True) is not False)
            hub[_TIE] = hub.get(_TIE, True) if scaled else False
        found = super().from_hub(hub, where)
        config = found.config
        assert isinstance(config, T5Config), "config_type says so"
        for key, value in (("dense_act_fn", config.activation), ("is_gated_act", config.gated)):
            if hub.get(key, value) != value:
                raise VerificationError(
                    f"{where}: {key} = {hub[key]!r} contradicts feed_forward_proj = "
                    f"{config.feed_forward!r}"
                )
        return found

    def model(self, config: T5Config, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_t5.heads import build

        return build(config, head)

    def onnx(self, config: T5Config, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes; there is no cache among them."""
        from zoo.export.spec import OnnxSpec

        source, target, width = ("batch", "tokens"), ("batch", "decoder_tokens"), config.hidden_size
        labels = len(config.labels)
        axes: dict[str, dict[str, tuple[str | int, ...]]] = {
            "none": {
                "last_hidden_state": (*target, width),
                "encoder_last_hidden_state": (*source, width),
            },
            "encoder": {"last_hidden_state": (*source, width)},
            "seq2seq-lm": {"logits": (*target, config.vocab_size)},
            "sequence-classification": {"logits": ("batch", labels)},
            "token-classification": {"logits": (*source, labels)},
            "question-answering": {"start_logits": source, "end_logits": source},
        }
        writes = {"decoder_input_ids": target} if head in ("none", "seq2seq-lm") else {}
        return OnnxSpec(
            inputs={"input_ids": source, "attention_mask": source, **writes}, outputs=axes[head]
        )

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer, whose sentinels stand for hidden spans."""
        from zoo.tokenization import CLOSED, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=CLOSED, sentinels=100
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (T5(),)
