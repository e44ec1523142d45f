"""Properties that ``tokenizer.json`` lacks: roles of special tokens, and maximum length."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct
from zoo.tokenizers.config_files import ROLES, TokenizerFilesConfig
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, SourceFiles
from zoo.tokenizers.wordpiece import DEFAULTS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# kind of model -> role -> default special token
CONVENTIONS: Mapping[str, Mapping[str, str]] = {"WordPiece": DEFAULTS}
ENDLESS = 10**9  # a model_max_length of at least this means "no limit"


class TokenizerInfo(JsonStruct):
    """Properties of a tokenizer that ``tokenizer.json`` has no field for.

    Attributes:
        special: role (``pad``, ``mask``, ``cls``, ``sep``, ``unk``, ``bos``, ``eos``) -> token.
        max_tokens: maximum input length of the model in tokens, or ``None``.
    """

    special: dict[str, str]
    max_tokens: int | None = None


def tokenizer_info(
    files: SourceFiles, tokenizer: "Tokenizer", roles: Mapping[str, str] | None = None
) -> TokenizerInfo:
    """Read the special tokens and the maximum length of a tokenizer.

    Args:
        files: directory that the tokenizer was built from.
        tokenizer: tokenizer to check the tokens against.
        roles: role -> token, for roles that no file defines; by default those of the type of model.

    Returns:
        special tokens by role, restricted to the vocabulary, and maximum length in tokens, or
            ``None``.

    Raises:
        VerificationError: a file is malformed.
    """
    settings = TokenizerFilesConfig.read(files)
    defaults = roles or CONVENTIONS.get(type(tokenizer.model).__name__, {})
    names = {**defaults, **{role: token.content for role, token in settings.named.items()}}
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown and tokenizer.token_to_id(names.get("unk", "")) is None:
        names["unk"] = unknown
    special = {role: names[role] for role in ROLES if role in names}
    return TokenizerInfo(
        special={r: t for r, t in special.items() if tokenizer.token_to_id(t) is not None},
        max_tokens=_max_tokens(settings.config, str(files.path(TOKENIZER_CONFIG))),
    )


def check_vocabulary(tokenizer: "Tokenizer", vocab_size: int, origin: str) -> None:
    """Check that every token id has a row in the token embedding.

    Args:
        tokenizer: tokenizer to check the tokens against.
        vocab_size: number of rows of the token embedding.
        origin: file of the tokenizer, for the message.

    Raises:
        VerificationError: an id is too high.
    """
    token, highest = max(tokenizer.get_vocab().items(), key=lambda item: item[1], default=("", -1))
    if highest >= vocab_size:
        raise VerificationError(
            f"{origin}: the tokenizer gives {token!r} the id {highest}, and the model has "
            f"{vocab_size} tokens",
            "tokenizer and weights belong to different checkpoints",
        )


def _max_tokens(config: Mapping[str, Any], origin: str) -> int | None:
    value = config.get("model_max_length", config.get("max_len"))
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 1:
        raise VerificationError(
            f"{origin}: model_max_length = {value!r:.100} is no number of tokens"
        )
    return int(value) if value < ENDLESS else None
