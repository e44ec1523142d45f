"""Tokenizers of sentencepiece (Kudo and Richardson 2018, arXiv:1808.06226), without its library.

* ``tokenizer.json`` describes a whole tokenizer, and stands but for ``do_lower_case`` and
  ``keep_accents`` where ``tokenizer_config.json`` states them. Where the model file is there too,
  it must give the same ids.
* A model file (``spiece.model``, ``sentencepiece.bpe.model``, ``spm.model``) is pieces and how
  text is normalized. Ids are those that sentencepiece gives, moved where a family has put other
  tokens before the pieces.

Other tools, which build from model files too, treat three things in another way than
sentencepiece does, and thereby than the models were trained: white space that the model does not
count as such separates words; punctuation that the model lists as user-defined symbols is taken
out of the text first, and what follows it begins with a space; and some leave the model's own
replacements of characters out. Sentencepiece is followed here.

In three things sentencepiece is not: special tokens that are written in a text are read as such,
as other tools do; where accents are taken off, so are marks that are none, such as variation
selectors, the grapheme joiner and the frame of a keycap, as other tools do and the original code
does not; and U+0344, a deprecated mark, is joined to the letter before it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.limits import MAX_ADDED_TOKENS, check_limit
from zoo.tokenizers.config_files import TokenizerFilesConfig, special
from zoo.tokenizers.consistency import check_same_tokenization
from zoo.tokenizers.sentencepiece.model import VocabLayout, build_model
from zoo.tokenizers.sentencepiece.normalization import (
    NormalizationOptions,
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
from zoo.tokenizers.source_files import (
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    SourceFiles,
    other_kind,
)
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens, with_spaced_mask
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import finalize, load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KNOWN = {"split_by_punct": False, "add_prefix_space": True}


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
) -> "Tokenizer":
    """Build a tokenizer whose ids equal those of the reference implementation.

    Offsets leave out the space before a word.

    Args:
        files: a directory with ``tokenizer.json`` or a model file.
        roles: special tokens by role, for where no file names them; ``unk`` must be one.
        template: what is put around texts; without one nothing is.
        first: tokens before the model's pieces.
        skip: how many of the model's own pieces ``first`` takes the place of.
        last: tokens after the pieces, where they are no pieces themselves.
        sentinels: how many tokens ``<extra_id_N>`` come last, in falling order, where
            ``extra_ids`` in ``tokenizer_config.json`` does not say.
        mask_takes_space: whether the mask takes the space before it along, where the files do
            not say.
        lowercase: whether texts are lower-cased where ``do_lower_case`` is not stated; ``None``
            where that option does not exist.
        strip_accents: whether accents are removed, unless ``keep_accents`` is stated.
        plain_quotes: whether double grave accents and double apostrophes become quotes, and any
            white space separates words.
        split_digit_comma: whether a comma never is in one piece with the digit before it.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, two of them contradict each other, the vocabulary
            lacks a token that every text needs, or something is asked for that is not
            implemented.
    """
    settings = TokenizerFilesConfig.read(files)
    if mask_takes_space:
        settings = with_spaced_mask(settings, roles)
    names = tokens_by_role(settings, roles)
    stated = _stated(settings, lowercase is not None, strip_accents)
    wanted = {"lowercase": bool(lowercase), "strip_accents": strip_accents, **stated}
    spelling = NormalizationOptions(**wanted, plain_quotes=plain_quotes)
    extra = _sentinels(files, settings, sentinels)
    layout = VocabLayout(first, skip, last, extra, names["unk"], split_digit_comma)
    usual = usual_tokens(roles, mask_takes_space)
    name = piece_model(files)
    tokenizer: Tokenizer | None = None
    control: list[str] = []
    if name is not None:
        tokenizer, control = _from_pieces(files, name, layout, spelling, set(names.values()))
    if files.has(TOKENIZER_JSON):
        tokenizer = _from_stored(files, settings, spelling, stated, tokenizer)
    else:
        usual += [special(token, token) for token in control]
    if tokenizer is None:
        raise other_kind(files, "a model file of sentencepiece")
    settings.add_to(tokenizer, [t for t in usual if tokenizer.token_to_id(t.content) is not None])
    if template is not None and tokenizer.post_processor is None and not settings.generic:
        tokenizer.post_processor = template.build(tokenizer, names, settings.where)
    finalize(tokenizer, settings)
    return tokenizer


def _sentinels(files: SourceFiles, settings: TokenizerFilesConfig, usual: int) -> int:
    """Return how many tokens ``<extra_id_N>`` there are, of a family that has them."""
    if not usual:
        return 0
    count: int = settings.option("extra_ids", (int,), usual)
    if isinstance(count, bool) or count < 0:
        raise VerificationError(f"{files.path(TOKENIZER_CONFIG)}: extra_ids = {count} is no number")
    check_limit(files.path(TOKENIZER_CONFIG), "extra_ids", count, MAX_ADDED_TOKENS)
    return count


def _stated(settings: TokenizerFilesConfig, cased: bool, accents: bool) -> dict[str, bool]:
    """Return what the configuration itself says about spelling, of what the family has."""
    for key, known in KNOWN.items():
        if settings.option(key, (bool,), known) != known:
            raise VerificationError(f"{settings.where}: {key} = {not known} is not implemented")
    stated = {}
    if cased and "do_lower_case" in settings.config:
        stated["lowercase"] = settings.option("do_lower_case", (bool,), False)
    if accents and "keep_accents" in settings.config:
        stated["strip_accents"] = not settings.option("keep_accents", (bool,), False)
    return stated


def _from_stored(
    files: SourceFiles,
    settings: TokenizerFilesConfig,
    spelling: NormalizationOptions,
    stated: Mapping[str, bool],
    source: "Tokenizer | None",
) -> "Tokenizer":
    """Read ``tokenizer.json``, and compare it with what a model file says."""
    tokenizer = load(files)
    if not settings.generic:
        override_normalizer(tokenizer, spelling, stated, str(files.path(TOKENIZER_JSON)))
    if source is not None:
        check_same_tokenization(files, tokenizer, source, str(piece_model(files)), whole=True)
    return tokenizer


def _from_pieces(
    files: SourceFiles,
    name: str,
    layout: VocabLayout,
    spelling: NormalizationOptions,
    named: Collection[str],
) -> tuple["Tokenizer", list[str]]:
    """Build from a model file, and list the symbols to be found before a text is split."""
    where = str(files.path(name))
    model = read_piece_model(files, name)
    tokenizer = build_model(model, layout, where)
    set_pipeline(tokenizer, model, spelling, where)
    change = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    pieces = layout.arrange(model)
    for text in (piece.text for piece in pieces if piece.kind == USER_DEFINED):
        if text not in named and (model.kind == BPE or change(text) != text):
            raise VerificationError(
                f"{where}: the user-defined symbol {text!r} is not implemented",
                "a tokenizer.json would say what is done about it",
            )
    return tokenizer, [piece.text for piece in pieces if piece.kind == CONTROL]
