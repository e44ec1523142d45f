"""Chinese words, found by jieba.

jieba takes the most probable words of a dictionary (https://github.com/fxsjy/jieba). It is run by
rjieba, without its model of unknown words, as in transformers. A word that is not a token is split
into its Chinese characters.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.io.json import JsonStruct, encode_hub_json
from zoo.tokenizers.normalizer_text import LOWER_CASE, WITHOUT_ACCENTS
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, TOKENIZER_JSON, VOCABULARY
from zoo.tokenizers.vocabulary import vocabulary_lines
from zoo.tokenizers.words.encoding import Span, Word
from zoo.tokenizers.words.libraries import load_library
from zoo.tokenizers.words.traced import TracedText

if TYPE_CHECKING:
    from tokenizers.models import Model

CACHED_CHARACTERS = 20_000


class JiebaWords(JsonStruct, tag="jieba"):
    """How jieba splits texts into words."""

    tool: ClassVar[str] = "jieba"

    lowercase: bool = True  # lower-case texts first
    strip_accents: bool | None = None  # remove accents first; ``None`` if texts are lower-cased

    @property
    def changes(self) -> tuple[str, ...]:
        """What it changes in texts."""
        changes = []
        if self.lowercase:
            changes.append(LOWER_CASE)
        if self.lowercase if self.strip_accents is None else self.strip_accents:
            changes.append(WITHOUT_ACCENTS)
        return tuple(changes)

    def split(self, text: str, model: "Model") -> list[Word]:
        """Return the words of a text, in order.

        Raises:
            UsageError: rjieba is not installed.
        """
        jieba = load_library("rjieba", self.tool, "pip install rjieba")
        normalize, normalize_character = _normalizer(self.lowercase, self.strip_accents)
        traced = TracedText(text).map_characters(normalize_character, normalize(text))
        words = []
        for content, start, end in jieba.tokenize(traced.text, hmm=False):
            for first, last in self._parts(content, model):
                words.append(traced.cut(start + first, min(start + last, end)).word())
        return words

    def _parts(self, word: str, model: "Model") -> Iterator[Span]:
        """Yield start and end of the parts of jieba's word."""
        if model.token_to_id(word) is not None:
            yield 0, len(word)
            return
        # White space is left out, and, as in the reference, not counted.
        start = 0
        for part in _space_chinese()(word).split():
            yield start, start + len(part)
            start += len(part)

    def hub_files(
        self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Return the tokenizer files of the Hub's layout."""
        config = {
            **config,
            "tokenizer_class": "RoFormerTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
        }
        # Without ``tokenizer.json``, transformers 5.23 does not pass the vocabulary to the class.
        return {
            VOCABULARY: vocabulary_lines(tokenizer["model"]["vocab"]),
            TOKENIZER_JSON: encode_hub_json(tokenizer),
            TOKENIZER_CONFIG: encode_hub_json(config),
        }


@cache
def _normalizer(
    lowercase: bool, strip_accents: bool | None
) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return functions that clean a text, and a character."""
    from tokenizers import normalizers

    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=False,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    return normalizer.normalize_str, lru_cache(CACHED_CHARACTERS)(normalizer.normalize_str)


@cache
def _space_chinese() -> Callable[[str], str]:
    """Return a function that puts spaces around Chinese characters."""
    from tokenizers import normalizers

    normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    spaced: Callable[[str], str] = normalizer.normalize_str
    return spaced
