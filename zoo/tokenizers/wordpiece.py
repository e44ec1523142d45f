"""WordPiece: from ``tokenizer.json``, or from ``vocab.txt`` and ``tokenizer_config.json``."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.consistency import check_same_tokenization
from zoo.tokenizers.source_files import (
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    VOCABULARY,
    SourceFiles,
    other_kind,
)
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens
from zoo.tokenizers.template import CLS_SEP, Template
from zoo.tokenizers.tokenizer_json import finalize, load
from zoo.tokenizers.untrusted.definition import check_ids
from zoo.tokenizers.words.mecab import MecabWords, read_mecab

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# White space that the tokenizers library strips from lines, by Unicode's definition, which lacks
# four control characters of Python's.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
LOG = logging.getLogger("zoo")
DEFAULTS = {role: f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")}
SPLITTERS = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
OPTIONS = {  # key of tokenizer_config.json -> attribute of the normalizer, default
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}


def wordpiece_tokenizer(
    files: SourceFiles, *, roles: Mapping[str, str] = DEFAULTS, template: Template = CLS_SEP
) -> "Tokenizer":
    """Build a tokenizer that returns the ids of the reference implementation.

    A ``tokenizer.json`` of another kind than WordPiece is used unchanged. Truncation and padding
    are disabled, since they are options of each run.

    Args:
        files: directory with ``tokenizer.json`` or ``vocab.txt``.
        roles: default special tokens, role -> token; ``unk`` and the template's are
            required.
        template: special tokens around texts, if there is no ``tokenizer.json``.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, two files contradict each other, the vocabulary
            lacks a special token, or an option is not supported.
    """
    # The ``tokenizers`` library tokenizes. This module defines the precedence of the files:
    #
    # * ``tokenizer.json`` is a complete definition. ``do_lower_case``, ``strip_accents`` and
    #   ``tokenize_chinese_chars`` in ``tokenizer_config.json`` override it. If there is
    #   ``vocab.txt`` too, it must result in the same ids.
    # * ``vocab.txt`` is a list of tokens. Options come from ``tokenizer_config.json``, else from
    #   the defaults of the original implementation: lower-case, no accents, a space around every
    #   Chinese character, 100 characters per word. Some published cased models have only this list;
    #   their texts are lower-cased, with a warning.
    from tokenizers import Tokenizer, models

    settings = TokenizerFilesConfig.read(files)
    has_definition = files.has(TOKENIZER_JSON)
    tokenizer = load(files) if has_definition else _from_vocabulary(files, settings, roles)
    if type(tokenizer.model).__name__ == "WordPiece":
        if has_definition and files.has(VOCABULARY):
            model: Any = tokenizer.model
            names = ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
            options: Any = {name: getattr(model, name) for name in names}
            source = Tokenizer(models.WordPiece(_vocabulary(files), **options))
            check_same_tokenization(files, tokenizer, source, VOCABULARY)
        path = files.path(TOKENIZER_JSON if has_definition else VOCABULARY)
        model = tokenizer.model
        config_token = settings.role_tokens.get("unk")
        if config_token and config_token.content != model.unk_token:
            raise VerificationError(
                f"{path}: the unknown token is {model.unk_token}, and {config_token.content} in "
                f"{TOKENIZER_CONFIG}"
            )
        _require(model.token_to_id(model.unk_token), model.unk_token, path)
        _complete(tokenizer, settings, path, roles, template)
    else:
        settings.add_to(tokenizer)
    finalize(tokenizer, settings)
    return tokenizer


def _from_vocabulary(
    files: SourceFiles, settings: TokenizerFilesConfig, roles: Mapping[str, str]
) -> "Tokenizer":
    from tokenizers import Tokenizer, models, normalizers

    unknown = tokens_by_role(settings, roles)["unk"]
    vocabulary = _vocabulary(files)
    splitter = read_mecab(settings)
    if splitter is not None:
        return _of_words(vocabulary, unknown, splitter, files.path(VOCABULARY))
    for key, supported in SPLITTERS.items():
        value = settings.config.get(key)
        if value not in (None, supported):
            raise VerificationError(
                f"{files.path(TOKENIZER_CONFIG)}: {key} = {value!r} is not implemented",
                f"only {supported!r} is; a tokenizer.json would say it all",
            )
    if "do_lower_case" not in settings.config:
        # Lower-casing makes tokens with capitals unreachable.
        words = [token for token in vocabulary if not token.startswith("[")]
        words_with_capitals = [token for token in words if token != token.lower()]
        if len(words_with_capitals) > len(words) / 100:
            LOG.info(
                "texts are lower-cased, as they are where no file says otherwise, though %s of the "
                'tokens in %s have capitals; {"do_lower_case": false} in %s keeps capitals',
                f"{len(words_with_capitals):,}",
                files.path(VOCABULARY),
                TOKENIZER_CONFIG,
            )
    with rust_parsing(files.path(VOCABULARY), "a vocabulary"):
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    options: Any = {attribute: default for attribute, default in OPTIONS.values()}
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    return tokenizer


def _of_words(
    vocabulary: dict[str, int], unknown: str, splitter: MecabWords, path: Path
) -> "Tokenizer":
    """Return the tokenizer of words that a library found in a text."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    with rust_parsing(path, "a vocabulary"):
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    characters = pre_tokenizers.Split(Regex("(?m)."), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([characters] if splitter.characters else [])
    return tokenizer


def _vocabulary(files: SourceFiles) -> dict[str, int]:
    """Read one token per line; the last of several equal lines has the id.

    Blank lines at the end are left out: no text has their token.
    """
    if not files.has(VOCABULARY):
        raise other_kind(files, VOCABULARY)
    lines = [line.rstrip(WHITE_SPACE) for line in files.text(VOCABULARY).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    vocabulary = {token: number for number, token in enumerate(lines)}
    check_ids(vocabulary, files.path(VOCABULARY), len(lines))
    return vocabulary


def _complete(
    tokenizer: "Tokenizer",
    settings: TokenizerFilesConfig,
    path: Path,
    roles: Mapping[str, str],
    template: Template,
) -> None:
    """Apply the configuration, and add the defaults of the reference implementation."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    if settings.is_generic and path.name == TOKENIZER_JSON:
        settings.add_to(tokenizer)
        return
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        for key, (attribute, default) in OPTIONS.items():
            if key in settings.config:
                types = (bool, type(default))
                setattr(normalizer, attribute, settings.option(key, types, default))
        tokenizer.normalizer = normalizer
    if tokenizer.pre_tokenizer is None:
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if tokenizer.decoder is None:
        tokenizer.decoder = decoders.WordPiece(prefix="##")
    special_tokens = tokens_by_role(settings, roles)
    needs_template = tokenizer.post_processor is None
    if needs_template:
        # This is checked before tokens are added, since adding gives a missing one a new id.
        added_tokens = {token.content for token in settings.added_tokens}
        for role in template.roles:
            token = special_tokens[role]
            if token not in added_tokens:
                _require(tokenizer.token_to_id(token), token, path)
    absent_roles = roles.keys() - settings.role_tokens.keys()
    default_tokens = {role: token for role, token in roles.items() if role in absent_roles}
    settings.add_to(tokenizer, usual_tokens(default_tokens, mask_takes_space=False))
    if needs_template:
        tokenizer.post_processor = template.build(tokenizer, special_tokens, settings.origin)


def _require(number: int | None, token: str, path: Path) -> None:
    if number is None:
        raise VerificationError(
            f"{path} has no token {token}",
            "it is not a WordPiece vocabulary, or tokenizer_config.json must set this token",
        )
