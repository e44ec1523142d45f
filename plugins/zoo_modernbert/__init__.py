"""ModernBERT (Warner et al. 2024, arXiv:2412.13663), and Ettin's encoders (arXiv:2507.11412)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_modernbert.composer import CLASSES, to_hub_keys
from zoo_modernbert.config import CONFIG_MAP, ModernBertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class ModernBert(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "modernbert"
    package: ClassVar[str] = "zoo_modernbert"
    model_types: ClassVar[tuple[str, ...]] = ("modernbert",)
    config_type: ClassVar[type[Config]] = ModernBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "modernbert-base"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("Wqkv",), rescaled=("Wqkv", "mlp.Wo"), rescaled_inputs=("mlp.Wo",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("ModernBert")
    other_classes: ClassVar[tuple[str, ...]] = tuple(CLASSES)
    fields_by_stage: ClassVar[tuple[str, ...]] = ("global_rope_theta", "local_rope_theta")
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "[UNK]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(tuple(special_tokens.values()))
    }

    @override
    def translate_config(self, hub: Mapping[str, Any]) -> dict[str, Any]:
        return to_hub_keys(hub)

    @override
    def reconfigure(self, model: Any, config: Any) -> None:
        model.global_rotary.base = config.global_rope_theta
        model.local_rotary.base = config.local_rope_theta

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import byte_level_bpe_tokenizer

        return byte_level_bpe_tokenizer(files, roles=self.special_tokens)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (ModernBert(),)
