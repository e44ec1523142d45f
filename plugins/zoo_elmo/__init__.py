"""ELMo (Peters et al. 2018, arXiv:1802.05365)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap, Translation
from zoo.errors import UsageError
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_elmo.config import CONFIG_MAP, ElmoConfig, from_options, to_options

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.export.spec import OnnxSpec
    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles, TextTokenizer

_HEADS = {
    "none": Head(
        (), ("last_hidden_state",), ("embed", "features"), "a vector for each word, of all layers"
    ),
    "bidirectional-lm": Head(
        (), ("forward_logits", "backward_logits"), (), "the word after each word, and before it"
    ),
}


class ElmoFamily(Family):
    """The family; torch is imported when a model is built.

    Its models never were in the Hub's layout: an ``options.json`` stands for ``config.json``, and
    the weights are in HDF5, under the names of the released TensorFlow code.
    """

    name: ClassVar[str] = "elmo"
    model_types: ClassVar[tuple[str, ...]] = ("elmo",)
    config_type: ClassVar[type[Config]] = ElmoConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_files: ClassVar[tuple[str, ...]] = ("options.json", "*_options.json")
    weight_format: ClassVar[str] = "hdf5"
    default_checkpoint: ClassVar[str] = "elmo-original"
    special_tokens: ClassVar[Mapping[str, str]] = {"bos": "<S>", "eos": "</S>", "unk": "<UNK>"}
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "words": NewTokenizer(("<S>", "</S>", "<UNK>"))
    }
    objectives: ClassVar[Mapping[str, str]] = {
        "bidirectional-lm": "zoo_elmo.objective:BidirectionalLm"
    }

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def claims(self, hub: Mapping[str, Any]) -> bool:
        """Tell its options by their two parts."""
        return all(isinstance(hub.get(part), dict) for part in ("char_cnn", "lstm"))

    def from_hub(self, hub: Mapping[str, Any], where: str = "options.json") -> Translation:
        """Translate an ``options.json``; see ``Family``."""
        return from_options(hub, where)

    def to_hub(self, config: ElmoConfig, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Translate back; see ``Family``."""
        return to_options(config, extra)

    def foreign(self, dialect: str, names: Collection[str], head: str) -> "dict[str, Foreign]":
        """What the released code saves while it trains is read."""
        from zoo_elmo.weights import trained

        if dialect != "tensorflow":
            return super().foreign(dialect, names, head)
        return {name: trained(name) for name in names}

    def onnx(self, config: ElmoConfig, head: str) -> "OnnxSpec":
        """Name inputs, outputs and axes; every word has the same number of characters.

        Like a session, a graph begins every batch with zeros, so that a text has one vector
        wherever it stands. To carry state from batch to batch, call the model with a ``State``.
        """
        from zoo.export.spec import OnnxSpec

        tokens = ("batch", "tokens")
        words = (*tokens, config.vocab_size)
        outputs: dict[str, dict[str, tuple[str | int, ...]]] = {
            "none": {"last_hidden_state": (*tokens, config.hidden_size)},
            "bidirectional-lm": {"forward_logits": words, "backward_logits": words},
        }
        return OnnxSpec(
            inputs={"character_ids": (*tokens, config.max_characters), "attention_mask": tokens},
            outputs=outputs[head],
        )

    def text_tokenizer(self, config: ElmoConfig) -> "TextTokenizer":
        """Split texts at white space, and words into characters."""
        from zoo_elmo.tokenizer import WordTokenizer

        return WordTokenizer(config.max_characters)

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Refuse: there is no vocabulary, and ``text_tokenizer`` needs no file.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{files.directory} has a tokenizer's files, and ELMo reads characters",
            "leave --tokenizer out",
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (ElmoFamily(),)
