"""Japanese words, found by MeCab.

MeCab (Kudo et al. 2004, "Applying Conditional Random Fields to Japanese Morphological Analysis")
finds the words of Japanese texts, which have no spaces. It is run by fugashi, with a dictionary
that is a package, as in transformers.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct, encode_hub_json
from zoo.tokenizers.normalizer_text import LOWER_CASE
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, VOCABULARY
from zoo.tokenizers.vocabulary import vocabulary_lines
from zoo.tokenizers.words.encoding import Span, Word
from zoo.tokenizers.words.libraries import load_library
from zoo.tokenizers.words.traced import TracedText

if TYPE_CHECKING:
    from tokenizers.models import Model

    from zoo.tokenizers.config_files import TokenizerFilesConfig

Dictionary = Literal["unidic_lite", "unidic", "ipadic"]
# Keys of ``tokenizer_config.json`` -> the values with which words are split.
REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "word_tokenizer_type": ("mecab",),
    "subword_tokenizer_type": ("wordpiece", "character"),
    "do_word_tokenize": (True,),
    "do_subword_tokenize": (True,),
}
DEFAULTS = {"subword_tokenizer_type": "wordpiece"}


class MecabWords(JsonStruct, tag="mecab"):
    """How MeCab splits texts into words."""

    tool: ClassVar[str] = "MeCab"

    dictionary: Dictionary = "unidic_lite"  # package with MeCab's dictionary
    normalize: bool = True  # normalize texts by NFKC first
    lowercase: bool = False  # lower-case words
    characters: bool = False  # each character of a word is a token

    @property
    def changes(self) -> tuple[str, ...]:
        """What it changes in texts."""
        changes = []
        if self.normalize:
            changes.append("Unicode in NFKC")
        if self.lowercase:
            changes.append(LOWER_CASE)
        return tuple(changes)

    def split(self, text: str, model: "Model | None" = None) -> list[Word]:
        """Return the words of a text, in order.

        Raises:
            UsageError: MeCab or the dictionary is not installed.
        """
        tagger = _tagger(self.dictionary)
        traced = TracedText(text)
        if self.normalize:
            traced = traced.normalize("NFKC")
        words = []
        start = 0
        for surface in tagger(traced.text):
            start = traced.text.index(surface, start)
            for first, last in self._parts(surface):
                word = traced.cut(start + first, start + last)
                content = word.text.lower() if self.lowercase else word.text
                words.append(Word(content, word.origins))
            start += len(surface)
        return words

    def _parts(self, surface: str) -> list[Span]:
        """Return start and end of the parts of MeCab's word, which may hold white space."""
        if self.characters:
            return [(0, len(surface))]
        return [match.span() for match in re.finditer(r"\S+", surface)]

    def hub_files(
        self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Return the tokenizer files of the Hub's layout."""
        config = {
            **config,
            "tokenizer_class": "BertJapaneseTokenizer",
            "do_lower_case": self.lowercase,
            "word_tokenizer_type": "mecab",
            "subword_tokenizer_type": "character" if self.characters else "wordpiece",
            "mecab_kwargs": {"mecab_dic": self.dictionary, "normalize_text": self.normalize},
        }
        return {
            VOCABULARY: vocabulary_lines(tokenizer["model"]["vocab"]),
            TOKENIZER_CONFIG: encode_hub_json(config),
        }


def read_mecab(settings: "TokenizerFilesConfig") -> MecabWords | None:
    """Return how ``tokenizer_config.json`` splits texts into words; ``None`` without MeCab.

    Raises:
        VerificationError: a key has a value that is not implemented.
    """
    config = settings.config
    if config.get("word_tokenizer_type") in (None, "basic"):
        return None
    for key, values in REQUIRED.items():
        value = config.get(key, DEFAULTS.get(key, values[0]))
        if value not in values:
            raise _unsupported(settings, key, value, " or ".join(map(str, values)))
    options = config.get("mecab_kwargs") or {}
    if not isinstance(options, dict):
        raise _unsupported(settings, "mecab_kwargs", options, "a table of options")
    for key in options:
        if key not in ("mecab_dic", "normalize_text") and options[key]:
            accepted = "mecab_dic and normalize_text"
            raise _unsupported(settings, f"mecab_kwargs.{key}", options[key], accepted)
    dictionary = options.get("mecab_dic", "unidic_lite")
    if dictionary not in get_args(Dictionary):
        names = ", ".join(get_args(Dictionary))
        raise _unsupported(settings, "mecab_kwargs.mecab_dic", dictionary, names)
    return MecabWords(
        dictionary=dictionary,
        normalize=bool(options.get("normalize_text", True)),
        lowercase=settings.option("do_lower_case", (bool,), False),
        characters=config.get("subword_tokenizer_type") == "character",
    )


def _unsupported(
    settings: "TokenizerFilesConfig", key: str, value: object, accepted: str
) -> VerificationError:
    return VerificationError(
        f"{settings.origin}/{TOKENIZER_CONFIG}: {key} = {value!r:.100} is not implemented",
        f"with MeCab, it is {accepted}",
    )


@cache
def _tagger(dictionary: str) -> Callable[[str], list[str]]:
    """Return a function that splits a text with a dictionary of MeCab."""
    command = f"pip install fugashi {dictionary.replace('_', '-')}"
    fugashi = load_library("fugashi", MecabWords.tool, command)
    folder = load_library(dictionary, MecabWords.tool, command).DICDIR
    tagger = fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')
    return lambda text: [word.surface for word in tagger(text)]
