"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_eurobert.config import CONFIG_MAP, EuroBertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

HEADS = ("none", "masked-lm", "sequence-classification", "token-classification")
BEGIN = "<|begin_of_text|>"
END = "<|end_of_text|>"


class EuroBert(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "eurobert"
    package: ClassVar[str] = "zoo_eurobert"
    model_types: ClassVar[tuple[str, ...]] = ("eurobert",)
    config_type: ClassVar[type[Config]] = EuroBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "eurobert-210m"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("q_proj", "v_proj"),
        rescaled=("k_proj", "v_proj", "down_proj"),
        rescaled_inputs=("down_proj",),
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: head for name, head in encoder_heads("EuroBert").items() if name in HEADS
    }
    fields_by_stage: ClassVar[tuple[str, ...]] = ("rope_theta",)
    special_tokens: ClassVar[Mapping[str, str]] = {
        "bos": BEGIN,
        "eos": END,
        "unk": END,  # No text has it: each byte is a token.
        "cls": BEGIN,
        "sep": END,
        "pad": END,
        "mask": "<|mask|>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec((BEGIN, END, "<|mask|>"))
    }

    @override
    def reconfigure(self, model: Any, config: Any) -> None:
        model.rotary.base = config.rope_theta

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import byte_level_bpe_tokenizer

        return byte_level_bpe_tokenizer(files, roles=self.special_tokens)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (EuroBert(),)
