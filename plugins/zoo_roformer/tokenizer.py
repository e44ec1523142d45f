"""Tokenizers of RoFormer."""

from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.tokenizers import SourceFiles, tokenizer_class, wordpiece_tokenizer
from zoo.tokenizers.config_files import TokenizerFilesConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of a model that was trained here.

    Raises:
        UsageError: the files are those of a published model.
    """
    # Without the name of a class, the type of the model decides, as in transformers. A published
    # ``tokenizer.json`` cannot say how words are found, and would split texts differently.
    is_generic = TokenizerFilesConfig.read(files).is_generic
    is_model = files.json_if_any("config.json").get("model_type") == "roformer"
    if tokenizer_class(files) is not None or (is_model and not is_generic):
        raise UsageError(
            f"{files.directory}: texts of RoFormerTokenizer are split into words by jieba, which "
            "zoo does not run",
            "choose another tokenizer with --tokenizer, or convert a copy of the directory "
            "without the files of the tokenizer",
        )
    return wordpiece_tokenizer(files)
