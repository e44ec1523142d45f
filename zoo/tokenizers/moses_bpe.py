"""Pieces of words that Moses splits: ``merges.txt`` has the merges, ``vocab.json`` the pieces.

``tokenizer.json`` cannot have all merges (see ``zoo.tokenizers.bpe.merges``), and only looks the
pieces up. Lample and Conneau 2019 (arXiv:1901.07291) and Le et al. 2020 (arXiv:1912.05372) prepare
texts in this way.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct, encode_hub_json
from zoo.tokenizers.bpe.base import has_merges
from zoo.tokenizers.bpe.merges import END, merge_packed
from zoo.tokenizers.config_files import EXTRA_KEYS, TokenizerFilesConfig
from zoo.tokenizers.normalizer_text import LOWER_CASE, WITHOUT_ACCENTS
from zoo.tokenizers.source_files import (
    MERGES,
    TOKENIZER_CONFIG,
    VOCAB_JSON,
    SourceFiles,
    other_kind,
)
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens
from zoo.tokenizers.targets import pack, unpack
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import finalize
from zoo.tokenizers.untrusted.definition import check_ids
from zoo.tokenizers.words.encoding import Word
from zoo.tokenizers.words.moses import TOOL, moses_words
from zoo.tokenizers.words.traced import TracedText

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import Model

# Languages whose words the released code finds by other libraries.
OTHER_LIBRARIES = {"zh": "jieba", "ja": "KyTea", "th": "PyThaiNLP"}
LANGUAGE = "src_lang"  # the key of a language
DOUBLE_QUOTES = re.compile("``|''")


class MosesBpe(JsonStruct, tag="moses"):
    """How texts are split into words by Moses, and words into pieces."""

    tool: ClassVar[str] = TOOL

    tokenizer_class: str  # name of the class in transformers
    merges: str  # contents of ``merges.txt``, packed
    vocabulary: str  # contents of ``vocab.json``, packed
    language: str = "en"  # code of the language whose rules split texts
    compose: bool = False  # make plain quotes, and NFC, of texts first
    lowercase: bool = False  # lower-case texts first
    strip_accents: bool = False  # lower-case words, and remove their accents

    @property
    def changes(self) -> tuple[str, ...]:
        """What it changes in texts."""
        changes = ["punctuation normalized"]
        if self.lowercase or self.strip_accents:
            changes.append(LOWER_CASE)
        if self.strip_accents:
            changes.append(WITHOUT_ACCENTS)
        return tuple(changes)

    def split(self, text: str, model: "Model | None" = None) -> list[Word]:
        """Return the pieces of a text, in order.

        Raises:
            UsageError: sacremoses is not installed.
        """
        traced = TracedText(text)
        if self.compose:
            traced = traced.sub(DOUBLE_QUOTES, '"').normalize("NFC")
        if self.lowercase:
            traced = traced.lower()
        pieces = []
        for word in moses_words(traced, self.language):
            if self.strip_accents:
                word = word.map_characters(_strip_accents, _strip_accents(word.text))
            if word.text:
                pieces += self._pieces(word)
        return pieces

    def _pieces(self, word: TracedText) -> list[Word]:
        """Return the pieces of a word; the last one ends with a mark."""
        pieces = []
        start = 0
        for symbol in merge_packed(self.merges, word.text):
            end = start + len(symbol)
            pieces.append(Word(symbol, word.origins[start:end]))
            start = end
        return pieces

    def hub_files(
        self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Return the tokenizer files of the Hub's layout."""
        return {
            VOCAB_JSON: unpack(self.vocabulary, VOCAB_JSON),
            MERGES: unpack(self.merges, MERGES),
            TOKENIZER_CONFIG: encode_hub_json({**config, "tokenizer_class": self.tokenizer_class}),
        }


def read_moses_bpe(
    files: SourceFiles, tokenizer_class: str, *, language: str, **options: bool
) -> MosesBpe:
    """Return how texts are split into pieces.

    Args:
        files: directory with ``vocab.json`` and ``merges.txt``.
        tokenizer_class: name of the class in transformers.
        language: the language, unless ``src_lang`` in ``tokenizer_config.json`` names one.
        **options: other fields of ``MosesBpe``.

    Raises:
        VerificationError: Moses does not split the language.
    """
    settings = TokenizerFilesConfig.read(files)
    language = settings.option(LANGUAGE, (str, type(None)), None) or language
    if language in OTHER_LIBRARIES:
        raise VerificationError(
            f"{files.path(TOKENIZER_CONFIG)}: {LANGUAGE} = {language!r} is not implemented: "
            f"its words are found by {OTHER_LIBRARIES[language]}",
            "name another language, or convert a copy of the directory without the files of the "
            "tokenizer",
        )
    files.text(MERGES)
    return MosesBpe(
        tokenizer_class=tokenizer_class,
        merges=pack(files.bytes(MERGES)),
        vocabulary=pack(files.bytes(VOCAB_JSON)),
        language=language,
        **options,
    )


def moses_bpe_tokenizer(
    files: SourceFiles,
    *,
    roles: Mapping[str, str],
    template: Template,
    extra_tokens: Sequence[str] = (),
) -> "Tokenizer":
    """Build the tokenizer that looks pieces up.

    Args:
        files: directory with ``vocab.json`` and ``merges.txt``; a ``tokenizer.json`` is not read,
            since it cannot have all merges.
        roles: default special tokens, role -> token.
        template: special tokens around texts.
        extra_tokens: default special tokens without a role.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed.
    """
    from tokenizers import Tokenizer, decoders, models

    if not has_merges(files):
        raise other_kind(files, f"{VOCAB_JSON} with {MERGES}")
    settings = TokenizerFilesConfig.read(files)
    vocabulary = files.json(VOCAB_JSON)
    check_ids(vocabulary, files.path(VOCAB_JSON), len(files.bytes(VOCAB_JSON)))
    special = tokens_by_role(settings, roles)
    if special["unk"] not in vocabulary:
        raise VerificationError(
            f"{files.path(VOCAB_JSON)} has no token {special['unk']}, which unknown pieces get",
            f"set unk_token in {TOKENIZER_CONFIG}",
        )
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk"]))
    tokenizer.decoder = decoders.BPEDecoder(suffix=END)
    usual = usual_tokens({role: special[role] for role in roles}, mask_takes_space=False)
    if not any(key in settings.all_keys for key in EXTRA_KEYS):
        extra = {token: token for token in extra_tokens}
        usual += usual_tokens(extra, mask_takes_space=False)
    settings.add_to(tokenizer, usual)
    tokenizer.post_processor = template.build(tokenizer, special, settings.origin)
    finalize(tokenizer, settings)
    return tokenizer


def _strip_accents(text: str) -> str:
    """Return a text in lower case, and without accents."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    letters = [letter for letter in decomposed if unicodedata.category(letter) != "Mn"]
    return "".join(letters).lower()
