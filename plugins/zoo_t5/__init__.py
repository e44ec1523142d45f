"""T5 and mT5 (Raffel et al. 2019, arXiv:1910.10683; Xue et al. 2020, arXiv:2010.11934)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.heads import standard_head
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_t5.config import CONFIG_MAPS, T5Config

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

_SEQ2SEQ_INPUTS = {
    "input_ids": "batch tokens",
    "attention_mask": "batch tokens",
    "decoder_input_ids": "batch decoder_tokens",
}
_HEADS = {
    "none": Head(
        ("T5Model", "MT5Model"),
        {
            "last_hidden_state": "batch decoder_tokens hidden_size",
            "encoder_last_hidden_state": "batch tokens hidden_size",
        },
        (),
        "hidden states of source and target",
        _SEQ2SEQ_INPUTS,
    ),
    "encoder": standard_head(
        "none", "T5Encoder", "MT5Encoder", summary="hidden states of the encoder alone"
    ),
    "seq2seq-lm": Head(
        ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "T5WithLMHeadModel"),
        {"logits": "batch decoder_tokens vocab_size"},
        ("seq2seq", "score"),
        "generation of a target text",
        _SEQ2SEQ_INPUTS,
    ),
    "sequence-classification": standard_head("sequence-classification", "T5", "MT5"),
    "token-classification": standard_head(
        "token-classification", "T5", "MT5", summary="classification of tokens, by the encoder"
    ),
    "question-answering": standard_head("question-answering", "T5", "MT5"),
}
_TIE, _SCALE = "tie_word_embeddings", "scale_decoder_outputs"


class T5(Family):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "t5"
    package: ClassVar[str] = "zoo_t5"
    model_types: ClassVar[tuple[str, ...]] = ("t5", "mt5")
    config_type: ClassVar[type[Config]] = T5Config
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["t5"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "t5-small"
    special_tokens: ClassVar[Mapping[str, str]] = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("<pad>", "</s>", "<unk>"), sentinels=100)
    }
    objectives: ClassVar[Mapping[str, str]] = {"bert-style": "zoo_t5.objectives:BertStyle"}

    def heads(self) -> Mapping[str, Head]:
        """Return the heads by name; ``none`` and ``seq2seq-lm`` take a target as well."""
        return _HEADS

    def model_type(self, config: T5Config) -> str:
        """Return ``t5`` or ``mt5``."""
        return config.series

    def from_hf(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        """Translate a configuration in which some keys follow from others.

        A model with unscaled hidden states has output embeddings of its own, unless the file has
        none: the Hub's library declares every model that it writes as tied, and distinguishes by
        the scale. A file that declares untied embeddings has to have the tensor.

        Raises:
            VerificationError: see ``Family``.
        """
        hub, untied = dict(hub), hub.get(_TIE) is False
        if hub.get("decoder_start_token_id") is None:
            hub.pop("decoder_start_token_id", None)
        if hub.get("model_type") == "mt5":
            hub[_TIE] = False
        else:
            scaled = hub.setdefault(_SCALE, hub.get(_TIE, True) is not False)
            hub[_TIE] = hub.get(_TIE, True) if scaled else False
        translated = super().from_hf(hub, location)
        declared = frozenset({"output_table"}) if untied else frozenset()
        return replace(translated, declared_optional=declared)

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer, with the sentinels of masked spans."""
        from zoo.tokenizers import EOS_ONLY, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=EOS_ONLY, sentinels=100
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (T5(),)
