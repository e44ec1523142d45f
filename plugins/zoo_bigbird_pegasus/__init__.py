"""BigBird-Pegasus (Zaheer et al. 2020, arXiv:2007.14062)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.errors import VerificationError
from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, source_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bigbird_pegasus.config import CONFIG_MAP, BigBirdPegasusConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class BigBirdPegasus(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bigbird_pegasus"
    package: ClassVar[str] = "zoo_bigbird_pegasus"
    model_types: ClassVar[tuple[str, ...]] = ("bigbird_pegasus",)
    config_type: ClassVar[type[Config]] = BigBirdPegasusConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bigbird-pegasus-large-arxiv"
    special_tokens: ClassVar[Mapping[str, str]] = {
        **Seq2SeqFamily.special_tokens,
        "bos": "<s>",
        "mask": "[MASK]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("<pad>", "</s>", "<s>", "<unk>"), ("[MASK]",))
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        **seq2seq_heads("BigBirdPegasus"),
        **source_heads("BigBirdPegasus"),
    }
    # The Hub's names of the encoder's projections differ from the decoder's.
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("query", "value", "q_proj", "v_proj"),
        rescaled=("key", "value", "k_proj", "v_proj", "fc2"),
        rescaled_inputs=("fc2",),
    )

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import EOS_ONLY, sentencepiece_tokenizer
        from zoo.tokenizers.source_files import TOKENIZER_CONFIG

        # Their class is PEGASUS's, whose ids are those of SentencePiece plus an offset. The pieces
        # of these files begin with the tokens that the offset makes room for.
        offset = files.json_if_any(TOKENIZER_CONFIG).get("offset", 0)
        if offset != 0:
            raise VerificationError(
                f"{files.path(TOKENIZER_CONFIG)}: offset = {offset!r:.100} is not implemented",
                "the ids of this family are those of the file's pieces: 0",
            )
        return sentencepiece_tokenizer(files, roles=self.special_tokens, template=EOS_ONLY)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (BigBirdPegasus(),)
