"""Tokenizers of RoFormer."""

from typing import TYPE_CHECKING

from zoo.tokenizers import SourceFiles, tokenizer_class, wordpiece_tokenizer
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.words.jieba import JiebaWords

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of a published model, or of one that was trained here."""
    from tokenizers import pre_tokenizers

    tokenizer = wordpiece_tokenizer(files)
    if _is_published(files):
        # Texts are cleaned before jieba finds the words.
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
    return tokenizer


def splitter(files: SourceFiles) -> JiebaWords | None:
    """Return how the texts of a published model are split; ``None`` for a model trained here."""
    if not _is_published(files):
        return None
    settings = TokenizerFilesConfig.read(files)
    return JiebaWords(
        lowercase=settings.option("do_lower_case", (bool,), True),
        strip_accents=settings.option("strip_accents", (bool, type(None)), None),
    )


def _is_published(files: SourceFiles) -> bool:
    """Return whether jieba finds the words of texts."""
    # Without the name of a class, the type of the model decides, as in transformers. A published
    # ``tokenizer.json`` cannot say how words are found, and would split texts differently.
    name = tokenizer_class(files)
    if name is not None:
        return name == "RoFormerTokenizer"
    is_model = files.json_if_any("config.json").get("model_type") == "roformer"
    return is_model and not TokenizerFilesConfig.read(files).is_generic
