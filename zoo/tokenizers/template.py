"""Templates of special tokens around a text or a pair of texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing

if TYPE_CHECKING:
    from tokenizers import Tokenizer, processors


@dataclass(frozen=True)
class Template:
    """Template of special tokens: ``$A`` and ``$B`` are the texts, other words are roles.

    ``:1`` after a word sets its token type to 1; the default is 0.
    """

    single: str  # template for one text, such as ``cls $A sep``
    pair: str  # template for a pair

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles in the template, without duplicates."""
        words = [word.partition(":")[0] for word in f"{self.single} {self.pair}".split()]
        return tuple(dict.fromkeys(word for word in words if not word.startswith("$")))

    def build(
        self, tokenizer: "Tokenizer", roles: Mapping[str, str], origin: str
    ) -> "processors.TemplateProcessing":
        """Return the post-processor of the ``tokenizers`` library.

        Args:
            tokenizer: tokenizer with the vocabulary.
            roles: role -> token.
            origin: directory of the files, for messages.

        Raises:
            VerificationError: the vocabulary lacks one of the tokens.
        """
        from tokenizers import processors

        ends = {roles[role]: 0 for role in self.roles}
        for token in ends:
            number = tokenizer.token_to_id(token)
            if number is None:
                raise VerificationError(
                    f"{origin}: the vocabulary has no token {token}, which every text needs",
                    "set this special token in tokenizer_config.json",
                )
            ends[token] = number
        with rust_parsing(origin, "a tokenizer"):
            return processors.TemplateProcessing(
                single=_pieces(self.single, roles),
                pair=_pieces(self.pair, roles),
                special_tokens=list(ends.items()),
            )


def _pieces(words: str, roles: Mapping[str, str]) -> list[str]:
    split = [word.partition(":") for word in words.split()]
    return [f"{roles.get(word, word)}:{type_id or 0}" for word, _, type_id in split]


def sets_token_types(ends: Mapping[str, Any]) -> bool:
    """Return whether a post-processor gives the texts of a pair different token types."""
    if any(sets_token_types(part) for part in ends.get("processors") or ()):
        return True
    if any(part.get("type_id") for piece in ends.get("pair") or () for part in piece.values()):
        return True
    # the older post-processor has no template, and always sets types
    return "sep" in ends and "trim_offsets" not in ends


CLS_SEP = Template("cls $A sep", "cls $A sep $B:1 sep:1")
CLS_SEP_SEP = Template("cls $A sep", "cls $A sep sep $B sep")
EOS_ONLY = Template("$A eos", "$A eos $B eos")
