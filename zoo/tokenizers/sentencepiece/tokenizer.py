"""SentencePiece tokenizers (Kudo and Richardson 2018, arXiv:1808.06226), without its library."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.limits import MAX_ADDED_TOKENS
from zoo.io.sizes import check_size
from zoo.tokenizers.config_files import TokenizerFilesConfig, parse_special_token
from zoo.tokenizers.consistency import check_same_tokenization
from zoo.tokenizers.sentencepiece.model import (
    FOREIGN,
    DictionaryLayout,
    VocabLayout,
    build_model,
)
from zoo.tokenizers.sentencepiece.normalization import (
    SPACE,
    NormalizationOptions,
    exclude,
    override_normalizer,
    set_pipeline,
)
from zoo.tokenizers.sentencepiece.proto import (
    BPE,
    CONTROL,
    USER_DEFINED,
    piece_model,
    read_piece_model,
)
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, TOKENIZER_JSON, SourceFiles, other_kind
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens, with_spaced_mask
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import definition_of, finalize, load, stored_kind

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SUPPORTED = {"split_by_punct": False, "add_prefix_space": True}


def is_sentencepiece(files: SourceFiles) -> bool:
    """Return whether the files are a SentencePiece tokenizer, for families that have other kinds.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: ``tokenizer.json`` is malformed.
    """
    return piece_model(files) is not None or stored_kind(files) == "Unigram"


def has_pieces(tokenizer: "Tokenizer") -> bool:
    """Return whether a ``tokenizer.json`` splits texts into the pieces of SentencePiece."""
    # Its BPE marks spaces in front of words; the other kinds of BPE read bytes, or words.
    if type(tokenizer.model).__name__ != "BPE":
        return type(tokenizer.model).__name__ == "Unigram"
    parts = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
    return any(SPACE in str(definition_of(part)) for part in parts)


def sentencepiece_tokenizer(
    files: SourceFiles,
    *,
    roles: Mapping[str, str],
    template: Template | None = None,
    first: Sequence[str] = (),
    skip: int = 0,
    last: Sequence[str] = (),
    sentinels: int = 0,
    mask_takes_space: bool = False,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    plain_quotes: bool = False,
    split_digit_comma: bool = False,
    dictionary: Mapping[str, int] | None = None,
    control: Sequence[str] = (),
    model_file: str | None = None,
) -> "Tokenizer":
    """Build a tokenizer that returns the ids of the reference implementation.

    Offsets exclude the space before a word. A ``tokenizer.json`` of another kind than
    SentencePiece is used unchanged.

    Args:
        files: directory with ``tokenizer.json`` or a model file.
        roles: default special tokens, role -> token; ``unk`` is required.
        template: special tokens around texts; by default none.
        first: tokens before the pieces.
        skip: number of pieces of the model that ``first`` replaces.
        last: tokens after the pieces; those that are pieces are skipped.
        sentinels: default number of tokens ``<extra_id_N>`` at the end, in descending order;
            ``extra_ids`` in ``tokenizer_config.json`` overrides it.
        mask_takes_space: default of the option: the mask token includes the space before it.
        lowercase: default of ``do_lower_case``; ``None`` if the family has no such option.
        strip_accents: default of the option that is the opposite of ``keep_accents``.
        plain_quotes: replace double grave accents and double apostrophes by quotes, and split
            words at any white space.
        split_digit_comma: always split a comma from the digit before it.
        dictionary: token -> id, where a file such as ``vocab.json`` has the vocabulary; then
            ``first``, ``skip``, ``last`` and ``sentinels`` have no effect. Pieces that it lacks
            are not used, and its tokens that are no pieces are decoded and never encoded.
        control: tokens of the dictionary, such as languages, that are matched in a text before it
            is split.
        model_file: name of the model file; by default a usual one.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, two files contradict each other, the vocabulary
            lacks a special token, or an option is not supported.
    """
    # This module builds a ``tokenizers.Tokenizer`` itself, because checkpoints are stored with
    # ``tokenizer.json``, and tasks need offsets and fast encoding of batches. Precedence of the
    # files:
    #
    # * ``tokenizer.json`` is a complete definition. ``do_lower_case`` and ``keep_accents`` in
    #   ``tokenizer_config.json`` override it. If there is a model file too, it must result in the
    #   same ids.
    # * A model file (``spiece.model``, ``sentencepiece.bpe.model``, ``spm.model``) has pieces and
    #   normalization. Ids are sentencepiece's, shifted by tokens that a family puts first.
    #
    # Other tools that convert model files differ from sentencepiece, and so from pretraining, in
    # three ways: words are also split at white space that the model does not define as such;
    # user-defined symbols are extracted first, and the text after them begins with a space; and
    # some omit the character map. This module follows sentencepiece.
    #
    # It differs from sentencepiece in three ways: special tokens in a text are recognized, as in
    # other tools; removal of accents also removes other marks, such as variation selectors, the
    # grapheme joiner and the enclosing keycap, as in other tools; and U+0344, a deprecated mark, is
    # joined to the letter before it.
    settings = TokenizerFilesConfig.read(files)
    name = model_file or piece_model(files)
    stored = load(files) if files.has(TOKENIZER_JSON) else None
    if name is None and stored is not None and not has_pieces(stored):
        settings.add_to(stored)
        finalize(stored, settings)
        return stored
    if mask_takes_space:
        settings = with_spaced_mask(settings, roles)
    names = tokens_by_role(settings, roles)
    stated = _stated(settings, lowercase is not None, strip_accents)
    normalization = {"lowercase": bool(lowercase), "strip_accents": strip_accents, **stated}
    spelling = NormalizationOptions(**normalization, plain_quotes=plain_quotes)
    layout = VocabLayout(
        first,
        skip,
        last,
        _sentinels(files, settings, sentinels),
        names["unk"],
        split_digit_comma,
    )
    if dictionary is not None:
        layout = DictionaryLayout(
            **vars(layout), dictionary=dictionary, control=(*names.values(), *control)
        )
    defaults = usual_tokens(roles, mask_takes_space)
    tokenizer: Tokenizer | None = None
    control_pieces: list[str] = []
    if name is not None:
        tokenizer, control_pieces = _from_pieces(files, name, layout, spelling, set(names.values()))
    if stored is not None:
        source = tokenizer
        tokenizer = stored
        if not settings.is_generic:
            override_normalizer(tokenizer, spelling, stated, str(files.path(TOKENIZER_JSON)))
        if source is not None:
            check_same_tokenization(files, tokenizer, source, str(name), whole=True)
    elif tokenizer is None:
        raise other_kind(files, "a model file of sentencepiece")
    else:
        defaults += [parse_special_token(token, token) for token in control_pieces]
    settings.add_to(tokenizer, defaults)
    if template is not None and tokenizer.post_processor is None and not settings.is_generic:
        tokenizer.post_processor = template.build(tokenizer, names, settings.origin)
    finalize(tokenizer, settings)
    return tokenizer


def _sentinels(files: SourceFiles, settings: TokenizerFilesConfig, default: int) -> int:
    """Return the number of tokens ``<extra_id_N>``."""
    if not default:
        return 0
    count: int = settings.option("extra_ids", (int,), default)
    if isinstance(count, bool) or count < 0:
        raise VerificationError(
            f"{files.path(TOKENIZER_CONFIG)}: extra_ids = {count} is not a number"
        )
    check_size(files.path(TOKENIZER_CONFIG), "extra_ids", count, MAX_ADDED_TOKENS)
    return count


def _stated(settings: TokenizerFilesConfig, cased: bool, accents: bool) -> dict[str, bool]:
    """Return the normalization options that the configuration sets."""
    for key, supported in SUPPORTED.items():
        if (value := settings.option(key, (bool,), supported)) != supported:
            raise VerificationError(f"{settings.origin}: {key} = {value} is not implemented")
    stated = {}
    if cased and "do_lower_case" in settings.config:
        stated["lowercase"] = settings.option("do_lower_case", (bool,), False)
    if accents and "keep_accents" in settings.config:
        stated["strip_accents"] = not settings.option("keep_accents", (bool,), False)
    return stated


def _from_pieces(
    files: SourceFiles,
    name: str,
    layout: VocabLayout,
    spelling: NormalizationOptions,
    named: Collection[str],
) -> tuple["Tokenizer", list[str]]:
    """Build a tokenizer from a model file; return it with its user-defined symbols."""
    origin = str(files.path(name))
    model = read_piece_model(files, name)
    tokenizer = build_model(model, layout, origin)
    set_pipeline(tokenizer, model, spelling, origin)
    change = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    pieces = layout.arrange(model)
    if any(piece.text.startswith(FOREIGN) for piece in pieces):
        exclude(tokenizer, FOREIGN)
    for text in (piece.text for piece in pieces if piece.kind == USER_DEFINED):
        if text not in named and (model.kind == BPE or change(text) != text):
            raise VerificationError(
                f"{origin}: the user-defined symbol {text!r} is not implemented",
                "add a tokenizer.json that handles it",
            )
    return tokenizer, [piece.text for piece in pieces if piece.kind == CONTROL]
