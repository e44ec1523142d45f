"""BART (Lewis et al. 2019, arXiv:1910.13461)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, source_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bart.config import CONFIG_MAP, SPECIAL_TOKENS, BartConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Bart(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bart"
    package: ClassVar[str] = "zoo_bart"
    model_types: ClassVar[tuple[str, ...]] = ("bart",)
    config_type: ClassVar[type[Config]] = BartConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bart-base"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("q_proj", "v_proj"),
        rescaled=("k_proj", "v_proj", "fc2"),
        rescaled_inputs=("fc2",),
    )
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",))
    }
    named_heads: ClassVar[Mapping[str, Head]] = {**seq2seq_heads("Bart"), **source_heads("Bart")}

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import CLS_SEP_SEP, byte_level_bpe_tokenizer

        return byte_level_bpe_tokenizer(
            files,
            roles=SPECIAL_TOKENS,
            template=CLS_SEP_SEP,
            trim_offsets=True,
            mask_takes_space=True,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bart(),)
