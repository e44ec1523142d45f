"""GTE's encoder of long texts (Zhang et al. 2024, arXiv:2407.19669)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_gte.config import CONFIG_MAP, CONFIG_MAPS, GteConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

# They have the order of the model types. ``New...`` are the classes of the published code.
_ENCODER_HEADS = encoder_heads("Gte", "New", pooler=True)
_MULTILINGUAL_TOKENS = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}


class Gte(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "gte"
    package: ClassVar[str] = "zoo_gte"
    model_types: ClassVar[tuple[str, ...]] = ("gte", "new")
    config_type: ClassVar[type[Config]] = GteConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "gte-multilingual-base"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("qkv_proj",),
        rescaled=("qkv_proj", "down_proj"),
        rescaled_inputs=("down_proj",),
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: _ENCODER_HEADS[name]
        for name in ("none", "masked-lm", "sequence-classification", "token-classification")
    }

    @override
    def model_type(self, config: GteConfig) -> str:
        return config.model_type

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        if config.ntk_factor is not None:  # The published code reads no factor without a type.
            hub["rope_scaling"] = {"type": "ntk", **hub["rope_scaling"]}
        return hub

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build XLM-R's tokenizer for multilingual models, and BERT's for English ones."""
        from zoo.tokenizers import CLS_SEP_SEP, is_sentencepiece, sentencepiece_tokenizer

        if not is_sentencepiece(files):
            return super().tokenizer(files)
        return sentencepiece_tokenizer(
            files,
            roles=_MULTILINGUAL_TOKENS,
            template=CLS_SEP_SEP,
            first=("<s>", "<pad>", "</s>", "<unk>"),
            skip=3,
            last=("<mask>",),
            mask_takes_space=True,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Gte(),)
