"""Odd texts in many languages, for tokenizers whose words a library finds."""

import random
from collections.abc import Sequence

from tests.tokenizers.texts import torture

TEXTS = (
    "",
    " ",
    "\t\n ",
    "Hello, world! It's Mr. Smith's dog -- isn't it? (yes)",
    "l'homme, aujourd'hui, c'\u00e9tait \u00ab g\u00e9nial \u00bb ; n'est-ce pas ? 1,5 % de 3.000",
    "\u0130stanbul \u0391\u03a3 \u0391\u03a3. \u015e\u015f\u0162\u0103\u00c2 Stra\u1e9ee",
    "a\u3000b\u00a0%n\u00ba\u00a05\u00a06 5\u00a0cm x\u00a0: y ,\u00a0z",
    "\x00\ufffda\u200bb\r\nc\td\x1ce\x85f\x0bg",
    "``quotes'' `a' \"b\", 'c.' \"d,\"e",
    "\u201cx\u201d \u2018y\u2019 \u201elow\u201c \u201az\u2019 \u2026",
    "DOTMULTI and DOTDOTDOTMULTI x..y... .. a.",
    "http://a.b/c?d=e&f foo@bar.com #tag @user www.x.org",
    "A. B. 5. No. 7 etc. fin. end. p. m. aaaa. bbb. Cc. d.'",
    "1.000,5 (a ) ( b) ,c ;d :e 50 % 3/4",
    "\u4e2d\u56fd\u3002 \u597d\uff0c\u300c\u662f\u300d\uff1f\uff0e x\uff11\uff12\uff5e",
    "\ud7ff\ue000\U0010ffff x",
    "\u4e2d" * 120,
    "x" * 3000,
    "a b. " * 100,
)
MARKS = (
    *" .,:;'\"`-_()[]<>%&/!?",
    *("..", "''", "``", " - ", "\n", "\t", "\u00a0", "\u3000", "\u200b", "\x00", "\x1f", "\u0301"),
    *("\u00ab", "\u00bb", "\u201e", "\u201c", "\u2018", "\u2019", "\u2026", "\u2013", "\u2014"),
    *("\u3002", "\uff0c", "\uff1a", "\uff0e", "\u0130", "\u03a3", "\u1e9e", "\ufe0f", "\u200d"),
    *("Mr.", "etc.", "l'", "n't", "DOTMULTI", "3.5", "1,000", "www.", "://"),
)


def odd_texts(*texts: str, count: int = 300, marks: Sequence[str] = ()) -> list[str]:
    """Return texts, and random ones of words and marks.

    Args:
        *texts: further texts.
        count: number of texts in all.
        marks: further marks.
    """
    generator = random.Random(0)
    lines = [*texts, *TEXTS, *torture()]
    words = [word for word in " ".join(torture()).split() if len(word) <= 40]
    mixed = [*words, *MARKS, *MARKS, *marks, *marks]
    while len(lines) < count:
        lines.append("".join(generator.choices(mixed, k=generator.randrange(1, 16))))
    return lines
