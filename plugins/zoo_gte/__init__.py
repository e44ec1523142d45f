"""GTE's encoder of long texts (Zhang et al. 2024, arXiv:2407.19669)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.config.rope import scaling_problem
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_gte.config import CONFIG_MAP, CONFIG_MAPS, GteConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Gte(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "gte"
    package: ClassVar[str] = "zoo_gte"
    model_types: ClassVar[tuple[str, ...]] = ("gte", "new")
    config_type: ClassVar[type[Config]] = GteConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "gte-multilingual-base"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets("qkv_proj", "down_proj")
    # They have the order of the model types. ``New...`` are the classes of the published code.
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "Gte", "New", pooler=True, without=("question-answering", "multiple-choice")
    )

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        if config.ntk_factor is not None:  # The published code reads no factor without a type.
            hub["rope_scaling"] = {"type": "ntk", **hub["rope_scaling"]}
        return hub

    @override
    def hub_problem(self, config: Any, extra: Mapping[str, Any] | None = None) -> str | None:
        if config.model_type != "new":
            return None
        return scaling_problem(config, "the published code of model_type new")

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build XLM-R's tokenizer for multilingual models, and BERT's for English ones."""
        from zoo.tokenizers import is_sentencepiece
        from zoo.tokenizers.fairseq import fairseq_sentencepiece_tokenizer

        if is_sentencepiece(files):
            return fairseq_sentencepiece_tokenizer(files)
        return super().tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Gte(),)
