"""Languages of models that translate: what a target begins with, and how it is tokenized."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.tokenizers import TextTokenizer
    from zoo.tokenizers.languages import TemplateLanguage


def target_settings(tokenizer: "TextTokenizer", language: str) -> dict[str, int]:
    """Return the settings of generation in a language: the token that leads the target."""
    target = tokenizer.in_language(language)
    assert target.language is not None, "the tokenizer is in it"
    number = target.token_id(target.language.token)
    assert number is not None, "its template has the token"
    return {_leading(target.language): number}


def target_tokenizer(tokenizer: "TextTokenizer", settings: Mapping[str, Any]) -> "TextTokenizer":
    """Return the tokenizer of targets, in the language that leads them in generation."""
    if tokenizer.targets is not tokenizer:
        return tokenizer.targets
    current = tokenizer.language
    number = None if current is None else settings.get(_leading(current))
    if current is None or number is None:
        return tokenizer
    token = tokenizer.token(number)
    if token == current.token or token not in tokenizer.languages:
        return tokenizer
    return tokenizer.in_language(token)


def _leading(language: "TemplateLanguage") -> str:
    """Return the setting that has the token of a target's language."""
    return "forced_bos_token_id" if language.leads else "decoder_start_token_id"
