"""Tokenizers of XLM and FlauBERT."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.tokenizers import CLS_SEP, SourceFiles, Template, tokenizer_class, wordpiece_tokenizer
from zoo.tokenizers.bpe.base import has_merges
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.moses_bpe import MosesBpe, moses_bpe_tokenizer, read_moses_bpe
from zoo.tokenizers.source_files import MERGES

if TYPE_CHECKING:
    from tokenizers import Tokenizer

XLM_TOKENIZER = "XLMTokenizer"
FLAUBERT_TOKENIZER = "FlaubertTokenizer"
PUBLISHED = Template("bos $A sep", "bos $A sep $B sep")
EXTRA_TOKENS = tuple(f"<special{number}>" for number in range(10))


def tokenizer(files: SourceFiles, roles: Mapping[str, str]) -> "Tokenizer":
    """Build the tokenizer of a published model, or of one that was trained here."""
    if not files.has(MERGES):
        return wordpiece_tokenizer(files, roles=roles, template=CLS_SEP)
    return moses_bpe_tokenizer(files, roles=roles, template=PUBLISHED, extra_tokens=EXTRA_TOKENS)


def splitter(files: SourceFiles) -> MosesBpe | None:
    """Return how the texts of a published model are split; ``None`` without its files."""
    if not has_merges(files):
        return None
    settings = TokenizerFilesConfig.read(files)
    model_type = files.json_if_any("config.json").get("model_type")
    if FLAUBERT_TOKENIZER in (tokenizer_class(files), f"{str(model_type).title()}Tokenizer"):
        return read_moses_bpe(
            files,
            FLAUBERT_TOKENIZER,
            language="fr",
            compose=True,
            lowercase=settings.option("do_lowercase", (bool,), False),
        )
    strip_accents = settings.option("do_lowercase_and_remove_accent", (bool,), True)
    return read_moses_bpe(files, XLM_TOKENIZER, language="en", strip_accents=strip_accents)
