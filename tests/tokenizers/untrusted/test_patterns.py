"""Regular expressions: published ones are accepted, unbounded ones refused."""

from pathlib import Path

import pytest

from zoo.errors import VerificationError
from zoo.tokenizers.untrusted.patterns import check_pattern

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PUBLISHED = [
    # GPT-2, Llama 3, Qwen 2, o200k, CLIP, BLOOM, DeepSeek, and replacements in T5 and others
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    + CONTRACTIONS
    + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    + CONTRACTIONS
    + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"<\|startoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",  # noqa: RUF001
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+""",
    r"[^\r\n\p{L}\p{N}]?+\p{L}++| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r" {2,}",
    r"\s+",
    r"[0-9][0-9][0-9]",
    r"[一-龥぀-ゟ゠-ヿ]+",  # noqa: RUF001
    r"[]a]+|[^]a]",
]
ENDLESS = [
    r"(a+)+b",
    r"(a|a)*b",
    r"(?:a|ab)+c",
    r"(?:a*)*",
    r"a*a*b",
    r"(?:a?){30}a{30}",
    "a?" * 30 + "a" * 30,
    r"(a{1,32}){2}b",
    r"a{1,30}b{1,30}c{1,30}d",
    r"(?:a*b)?c*(?:a*b)x",
    r".*=",
    r"(?:.*)=",
    r"(?:(?:[\s\S]{7})+)x",
    r"[^x]*y",
    r"(?=a*b)c",
    r"a{1,3}+b",
    r"a{0,100000}",
    "a" * 5000,
]
UNSUPPORTED = [r"(a)\1", r"\g<0>", r"\k<n>", "(?~ab)", "(?x) a", "(?#c)", "(?<n>a)", "(?(1)a|b)"]
UNSUPPORTED += [r"a**", r"\X", r"\Qa", r"\p{L", r"\xzz", "[a", "(a", "a)", "*a", "a{", "(" * 3000]


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_published_patterns_are_accepted(pattern: str) -> None:
    assert check_pattern(pattern, Path("tokenizer.json")).shortest >= 1


@pytest.mark.parametrize("pattern", [*ENDLESS, *UNSUPPORTED], ids=lambda text: str(text)[:20])
def test_unbounded_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(
        VerificationError, match=r"^tokenizer\.json: .*regular expression"
    ) as refused:
        check_pattern(pattern, Path("tokenizer.json"))
    assert len(str(refused.value)) < 400


def test_shortest_match() -> None:
    for pattern, length in {"a|bcd": 1, "a{3}b?": 3, "(?:ab){2,}": 4, "a*": 0, r"\bab": 2}.items():
        assert check_pattern(pattern, Path("tokenizer.json")).shortest == length
