"""Loading the tokenizer of a checkpoint."""

from typing import TYPE_CHECKING

from zoo.checkpoint.load import Checkpoint
from zoo.checkpoint.records import TOKENIZER
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.tokenizers.info import TokenizerInfo, check_template, check_vocabulary
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer import TextTokenizer
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_text_tokenizer(checkpoint: Checkpoint) -> TextTokenizer:
    """Load the tokenizer of a checkpoint.

    Raises:
        UsageError: the checkpoint has no tokenizer.
        SourceError, VerificationError: ``tokenizer.json`` is missing or damaged.
    """
    built_in = checkpoint.family.text_tokenizer(checkpoint.config)
    if built_in is not None:
        return built_in
    tokenizer = load_vocabulary(checkpoint)
    if tokenizer is None:
        raise UsageError(
            f"{checkpoint.name} has no {TOKENIZER}, which text tasks need",
            "`zoo convert ... --tokenizer REF` adds one",
        )
    return tokenizer


def load_vocabulary(checkpoint: Checkpoint) -> TextTokenizer | None:
    """Load the tokenizer whose tokens a model predicts; ``None`` if the checkpoint has none.

    A family that reads characters has another one for texts, see ``load_text_tokenizer``.
    """
    info = checkpoint.model.tokenizer
    if info is None:
        return None
    path = checkpoint.tokenizer_file
    tokenizer = load(SourceFiles(path.parent))
    check_tables(tokenizer, info, checkpoint.family, checkpoint.config, str(path))
    return TextTokenizer(tokenizer, info, str(path))


def check_tokenizer(checkpoint: Checkpoint) -> None:
    """Check the tokenizer of a checkpoint, if it has one, for verbs that read no texts."""
    if checkpoint.model.tokenizer is not None:
        load_text_tokenizer(checkpoint)


def check_tables(
    tokenizer: "Tokenizer", info: TokenizerInfo, family: Family, config: Config, origin: str
) -> None:
    """Check that every token and token type of a tokenizer has a row in the model's tables."""
    reads_types = "token_type_ids" in family.onnx(config, next(iter(family.heads()))).inputs
    token_types = None
    if reads_types and info.token_types:
        token_types = getattr(config, "type_vocab_size", None)
    check_vocabulary(tokenizer, config.vocab_size, origin)
    check_template(tokenizer, config.vocab_size, token_types, origin)
