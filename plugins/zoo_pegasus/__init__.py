"""PEGASUS (Zhang et al. 2019, arXiv:1912.08777)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.errors import VerificationError
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_pegasus.config import CONFIG_MAP, PegasusConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

# The first one masks sentences, the second one tokens.
MASKS = "<mask_1>", "<mask_2>"
OFFSET = 103  # It is added to the ids of SentencePiece's pieces.
# the first tokens of published vocabularies; they replace two pieces of SentencePiece's
FIRST = ("<pad>", "</s>", *MASKS, *(f"<unk_{number}>" for number in range(2, OFFSET)))


class Pegasus(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "pegasus"
    package: ClassVar[str] = "zoo_pegasus"
    model_types: ClassVar[tuple[str, ...]] = ("pegasus",)
    config_type: ClassVar[type[Config]] = PegasusConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("PegasusTokenizer",)
    default_checkpoint: ClassVar[str] = "pegasus-large"
    named_heads: ClassVar[Mapping[str, Head]] = seq2seq_heads("Pegasus")
    special_tokens: ClassVar[Mapping[str, str]] = {
        **Seq2SeqFamily.special_tokens,
        "mask": MASKS[1],
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("<pad>", "</s>", "<unk>"), MASKS)
    }
    objectives: ClassVar[Mapping[str, str]] = {
        "gap-sentences": "zoo_pegasus.objective:GapSentences"
    }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import Template, sentencepiece_tokenizer
        from zoo.tokenizers.source_files import TOKENIZER_CONFIG

        settings = files.json_if_any(TOKENIZER_CONFIG)
        offset = settings.get("offset", OFFSET)
        if offset != OFFSET:
            raise VerificationError(
                f"{files.path(TOKENIZER_CONFIG)}: offset = {offset!r:.100} is not implemented",
                f"the pieces of the file begin at {OFFSET} in this family",
            )
        template = Template("$A eos", "$A $B eos")
        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=template, first=FIRST, skip=2
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Pegasus(),)
