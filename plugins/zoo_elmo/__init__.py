"""ELMo (Peters et al. 2018, arXiv:1802.05365)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_elmo.config import CONFIG_MAP, ElmoConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles, TextTokenizer

_INPUTS = {"character_ids": "batch tokens max_characters", "attention_mask": "batch tokens"}
_HEADS = {
    "none": standard_head(
        "none", inputs=_INPUTS, summary="hidden states of words, from all layers"
    ),
    "bidirectional-lm": Head(
        (),
        dict.fromkeys(("forward_logits", "backward_logits"), "batch tokens vocab_size"),
        (),
        "the next and the previous word",
        _INPUTS,
    ),
    "sequence-classification": standard_head("sequence-classification", inputs=_INPUTS),
    "token-classification": standard_head("token-classification", inputs=_INPUTS),
}
_UNWRITTEN = ("id2label", "label2id", "problem_type", "model_type")


class ElmoFamily(Family):
    """The family; it imports torch when a model is built.

    Its checkpoints are not in the Hub's layout: an ``options.json`` takes the place of
    ``config.json``, and the weights are in HDF5, under the names of the released TensorFlow code.

    Sessions and ONNX graphs start every batch with zeros, so that the outputs of a text do not
    depend on other batches. To carry the state from batch to batch, call the model with a
    ``RecurrentState``.
    """

    name: ClassVar[str] = "elmo"
    package: ClassVar[str] = "zoo_elmo"
    model_types: ClassVar[tuple[str, ...]] = ("elmo",)
    config_type: ClassVar[type[Config]] = ElmoConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_files: ClassVar[tuple[str, ...]] = ("options.json", "*_options.json")
    weight_format: ClassVar[str] = "hdf5"
    default_checkpoint: ClassVar[str] = "elmo-original"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("carry", "transform", "projection"), rescaled=("projection",)
    )
    special_tokens: ClassVar[Mapping[str, str]] = {"bos": "<S>", "eos": "</S>", "unk": "<UNK>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "words": TokenizerTrainSpec(("<S>", "</S>", "<UNK>"))
    }
    objectives: ClassVar[Mapping[str, str]] = {
        "bidirectional-lm": "zoo_elmo.objective:BidirectionalLm"
    }

    @override
    def heads(self) -> Mapping[str, Head]:
        return _HEADS

    @override
    def matches_config(self, hub: Mapping[str, Any]) -> bool:
        return all(isinstance(hub.get(part), dict) for part in ("char_cnn", "lstm"))

    @override
    def to_hub(self, config: ElmoConfig, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        return {key: value for key, value in hub.items() if key not in _UNWRITTEN}

    @override
    def text_tokenizer(self, config: ElmoConfig) -> "TextTokenizer":
        from zoo_elmo.tokenizer import WordTokenizer

        return WordTokenizer(config.max_characters)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        raise UsageError(
            f"{files.directory} has a tokenizer's files, and ELMo reads characters",
            "leave --tokenizer out",
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (ElmoFamily(),)
