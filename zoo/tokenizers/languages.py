"""Languages of a multilingual tokenizer, whose template puts a token of the language at a text."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.io.json import dump_json
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer_json import definition_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TemplateLanguage(NamedTuple):
    """The language that a template states."""

    token: str  # such as ``en_XX``
    leads: bool  # before the text, as in mBART-50; otherwise after it, as in mBART


def language_of(tokenizer: "Tokenizer", info: TokenizerInfo) -> TemplateLanguage | None:
    """Return the language of a tokenizer's texts: the only token around them without a role."""
    template = _template(definition_of(tokenizer.post_processor))
    pieces = [] if template is None else template["single"]
    names = [piece["SpecialToken"]["id"] if "SpecialToken" in piece else "" for piece in pieces]
    language_tokens = {name for name in names if name} - {*info.special.values()}
    if len(language_tokens) != 1 or "" not in names:
        return None
    (token,) = language_tokens
    return TemplateLanguage(token, names.index(token) < names.index(""))


def languages_of(tokenizer: "Tokenizer", info: TokenizerInfo) -> list[str]:
    """Return the tokens of all languages; none without a language around texts."""
    if language_of(tokenizer, info) is None:
        return []
    added_tokens = tokenizer.get_added_tokens_decoder().values()
    special_tokens = {token.content for token in added_tokens if token.special}
    return sorted(special_tokens - {*info.special.values()})


def language_name(token: str) -> str:
    """Return the name of a language, which some tokenizers spell with marks: ``__en__``."""
    is_marked = len(token) > 4 and token.startswith("__") and token.endswith("__")
    return token[2:-2] if is_marked else token


def in_language(
    tokenizer: "Tokenizer", info: TokenizerInfo, language: str
) -> "tuple[Tokenizer, TokenizerInfo]":
    """Return a copy of a tokenizer for texts in another language, and its properties.

    Args:
        tokenizer: the tokenizer.
        info: its properties.
        language: name or token of the language.

    Raises:
        UsageError: the tokenizer has no languages, or not this one.
    """
    from tokenizers import Tokenizer

    current_language = language_of(tokenizer, info)
    tokens = languages_of(tokenizer, info)
    if current_language is None:
        raise UsageError("the tokenizer of the model has no languages", "leave out the language")
    current_token = current_language.token
    names = {language_name(token): token for token in tokens}
    token = names.get(language_name(language))
    if token is None:
        example = language_name(current_token)
        hint = did_you_mean(language, list(names)) or f"{len(names)} are known, such as {example}"
        raise UsageError(f"the tokenizer of the model has no language {language}", hint)
    definition = json.loads(tokenizer.to_str())
    template = _template(definition["post_processor"])
    assert template is not None, "has a language"
    for piece in (*template["single"], *template["pair"]):
        if piece.get("SpecialToken", {}).get("id") == current_token:
            piece["SpecialToken"]["id"] = token
    del template["special_tokens"][current_token]
    number = tokenizer.token_to_id(token)
    template["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
    extra = {**info.extra_config, "src_lang": language_name(token)}
    return (
        Tokenizer.from_str(dump_json(definition)),
        msgspec.structs.replace(info, extra_config=extra),
    )


def _template(ends: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the template of a post-processor, which may have several steps."""
    if ends is None:
        return None
    steps = ends["processors"] if ends["type"] == "Sequence" else [ends]
    return next((step for step in steps if step["type"] == "TemplateProcessing"), None)
