"""Check that a regular expression in ``tokenizer.json`` runs in bounded time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import VerificationError
from zoo.io.limits import MAX_PATTERN_LENGTH, MAX_PATTERN_REPEAT, MAX_PATTERN_WAYS
from zoo.io.sizes import check_size

_CLASS_ESCAPES = frozenset("sSdDwWhHrntfvae")
_ANCHOR_ESCAPES = frozenset("bBAzZG")
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")
_GROUPS = ("(?:", "(?>", "(?i:", "(?m:", "(?-i:")


@dataclass(frozen=True)
class Pattern:
    """Static properties of a part of a pattern."""

    shortest: int  # length of the shortest match in characters
    can_fail: bool  # ``True`` if there are texts that it does not match
    # upper bound for the ways to match at one position, unbounded repetitions excluded
    ways: int = 1
    loops: int = 0  # number of unbounded repetitions that backtracking can shorten
    # the same, of those that are followed, within the part, by something that can fail
    inner_ways: int = 1
    inner_loops: int = 0
    crosses_words: bool = False  # ``True`` if a loop matches both spaces and letters


_CHARACTER = Pattern(1, True)
_ASSERTION = Pattern(0, True)


def check_pattern(text: str, path: Path) -> Pattern:
    """Check that a regular expression runs in bounded time.

    The tokenizer library runs it with Oniguruma, which backtracks: the time of ``(a+)+b`` doubles
    with every letter of a text, without a limit and without interruption. A pattern is therefore
    parsed here first, and refused unless all of the following holds, as it does for published
    tokenizers:

    * It consists of characters, classes, groups, alternatives, look-around and quantifiers; no
      back-references, calls, conditions, comments, or quantifiers of quantifiers.
    * A repeated group matches a text in one way only: ``(?:ab)+``, but not ``(?:a|ab)+``.
    * At most one of the unbounded repetitions in one alternative is followed by something that
      can fail, which is when an engine backtracks; and it takes either spaces or letters, not
      both. So backtracking ends at the border of a word, and takes no more than its length
      squared.
    * The bounded choices before something that can fail multiply to at most ``MAX_PATTERN_WAYS``.

    A time limit in a subprocess would slow down every load of a tokenizer, and only test
    particular texts.
    """
    check_size(path, "length of a regular expression", len(text), MAX_PATTERN_LENGTH)
    try:
        parser = _Parser(text)
        pattern = parser.alternatives()
        if parser.at < len(text):
            raise _Refused("it has a closing parenthesis too many")
        if pattern.inner_loops > 1 or pattern.inner_ways > MAX_PATTERN_WAYS:
            raise _Refused("it may backtrack without end")
    except (_Refused, RecursionError) as error:
        raise VerificationError(
            f"{path}: the regular expression {text[:100]!r} is not accepted: {error}",
            "remove it from the file, or use another tokenizer",
        ) from error
    return pattern


class _Refused(Exception):
    """Raised with the reason to refuse a pattern."""


class _Parser:
    """Recursive-descent parser of a regular expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self) -> Pattern:
        """Parse alternatives up to a closing parenthesis or the end."""
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return Pattern(
            shortest=min(branch.shortest for branch in branches),
            can_fail=all(branch.can_fail for branch in branches),
            ways=sum(branch.ways for branch in branches),
            loops=max(branch.loops for branch in branches),
            inner_ways=sum(branch.inner_ways for branch in branches),
            inner_loops=max(branch.inner_loops for branch in branches),
            crosses_words=any(branch.crosses_words for branch in branches),
        )

    def _sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            # A part is a character, a class, an assertion or a group, and its quantifier.
            begin = self.at
            part, is_group = self._atom()
            atom_text = self.text[begin : self.at]
            bounds = self._bounds()
            if bounds is not None:
                part = self._quantify(part, is_group, atom_text, bounds)
            parts.append(part)
        failing_parts = [index for index, part in enumerate(parts) if part.can_fail]
        ways = 1
        loops = 0
        if failing_parts:
            last_failing = failing_parts[-1]
            followed_parts = parts[:last_failing]
            if any(part.crosses_words for part in followed_parts):
                raise _Refused(
                    "a repetition over whole texts is followed by something that can fail"
                )
            ways = math.prod(part.ways for part in followed_parts) * parts[last_failing].inner_ways
            loops = sum(part.loops for part in followed_parts) + parts[last_failing].inner_loops
        return Pattern(
            shortest=sum(part.shortest for part in parts),
            can_fail=bool(failing_parts),
            ways=math.prod(part.ways for part in parts),
            loops=sum(part.loops for part in parts),
            inner_ways=max([ways, *(part.inner_ways for part in parts)]),
            inner_loops=max([loops, *(part.inner_loops for part in parts)]),
            crosses_words=any(part.crosses_words for part in parts),
        )

    def _atom(self) -> tuple[Pattern, bool]:
        """Parse an atom; return it, and ``True`` if it is a group."""
        character = self.text[self.at]
        if character == "(":
            return self._group(), True
        if character == "[":
            self._class()
        elif character == "\\":
            return self._escape(), False
        elif character in "^$":
            self.at += 1
            return _ASSERTION, False
        elif character in "*+?{":
            raise _Refused(f"{character} follows nothing that can be repeated")
        else:
            self.at += 1
        return _CHARACTER, False

    def _group(self) -> Pattern:
        look_around = self._take_any(_LOOKAROUND)
        opening = look_around or self._take_any(_GROUPS)
        if opening is None:
            self._expect("(")
            if self.text.startswith(("?", "*"), self.at):
                raise _Refused(f"{self.text[self.at - 1 : self.at + 3]} is not supported")
        body = self.alternatives()
        self._expect(")")
        if look_around:
            if body.loops:
                raise _Refused("a look-around has an unbounded repetition")
            return Pattern(0, True, 1, 0, body.ways, 0)
        if opening == "(?>":  # An atomic group is never shortened once it has matched.
            return Pattern(body.shortest, body.can_fail, 1, 0, body.inner_ways, body.inner_loops)
        return body

    def _class(self) -> None:
        """Skip a bracketed class, which may be nested."""
        self._expect("[")
        self._take("^")
        if self._take("]"):
            pass  # A bracket in first position is a literal.
        while not self._take("]"):
            if self.at >= len(self.text):
                raise _Refused("a bracket is not closed")
            if self.text[self.at] == "[":
                self._class()
            elif self.text[self.at] == "\\":
                self._escape(in_class=True)
            else:
                self.at += 1

    def _escape(self, in_class: bool = False) -> Pattern:
        self._expect("\\")
        character = self.text[self.at : self.at + 1]
        self.at += 1
        if character in ("p", "P", "x") and self._take("{"):
            end = self.text.find("}", self.at)
            if not 0 <= end - self.at <= 40:
                raise _Refused("a brace is not closed")
            self.at = end + 1
        elif character in ("x", "u"):
            length = 2 if character == "x" else 4
            digits = self.text[self.at : self.at + length]
            if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise _Refused(f"\\{character} is not followed by digits")
            self.at += len(digits)
        elif character in _ANCHOR_ESCAPES and not in_class:
            return _ASSERTION
        elif not character or (character.isalnum() and character not in _CLASS_ESCAPES):
            raise _Refused(f"\\{character} is not supported")
        return _CHARACTER

    def _quantify(
        self, atom: Pattern, is_group: bool, text: str, bounds: tuple[int, int | None]
    ) -> Pattern:
        least, most = bounds
        braces = self.text[self.at - 1] == "}"
        possessive = not braces and self._take("+")
        self._take("?")
        if self.text[self.at : self.at + 1] in ("*", "+", "?", "{") and self.at < len(self.text):
            raise _Refused("a quantifier follows another")
        if not atom.shortest and (most is None or most > 1):
            raise _Refused("a repeated part may be empty")
        if is_group and (most is None or most > 1) and (atom.ways > 1 or atom.loops):
            raise _Refused("a group that can match in several ways is repeated")
        ways = 1
        loops = 0
        crosses_words = False
        if not possessive:  # A possessive quantifier is never shortened.
            ways = atom.ways
            loops = atom.loops
            crosses_words = atom.crosses_words
            if most is None or most - least > MAX_PATTERN_REPEAT:
                loops += 1
                if not crosses_words:
                    crosses_words = atom.shortest > 1 or _takes_spaces_and_letters(text)
            else:
                ways *= most - least + 1
        return Pattern(
            shortest=atom.shortest * least,
            can_fail=atom.can_fail and least > 0,
            ways=ways,
            loops=loops,
            inner_ways=atom.inner_ways,
            inner_loops=atom.inner_loops,
            crosses_words=crosses_words,
        )

    def _bounds(self) -> tuple[int, int | None] | None:
        """Parse a quantifier without its lazy or possessive suffix."""
        for mark, bounds in {"*": (0, None), "+": (1, None), "?": (0, 1)}.items():
            if self._take(mark):
                return bounds
        if not self._take("{"):
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at : max(end, self.at)].partition(",")
        if end < 0 or not all(part.isascii() and part.isdecimal() for part in (low, high) if part):
            raise _Refused("{ is not a quantifier; write \\{ for the character")
        if not (low or high) or max(len(low), len(high)) > 4:
            raise _Refused("a quantifier has no sound bounds")
        self.at = end + 1
        least = int(low or 0)
        most: int | None = least
        if comma:
            most = int(high) if high else None
        if most is not None and (most < least or most > 1000):
            raise _Refused("a quantifier has no sound bounds")
        return least, most

    def _take(self, mark: str) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def _take_any(self, marks: Sequence[str]) -> str | None:
        """Take the first of several marks that comes next, and return it."""
        for mark in marks:
            if self._take(mark):
                return mark
        return None

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise _Refused(f"{mark} is missing")


def _takes_spaces_and_letters(atom: str) -> bool:
    """Return ``True`` if a character or class matches both a space and a letter or digit."""
    from tokenizers import Regex, normalizers

    try:
        remaining = normalizers.Replace(Regex(atom), "").normalize_str(" eE0\u044f\u4e2d")
    except Exception as error:  # the library raises no more specific type
        raise _Refused(" ".join(str(error).split())[:100]) from error
    return " " not in remaining and len(remaining) < 5
