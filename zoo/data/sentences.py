"""Rule-based sentence splitting."""

import re

# The lookbehind and possessive quantifiers prevent backtracking: linear time in the text.
SENTENCE_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]\u00bb]*+(\s++)(?=(.))", re.DOTALL
)
OPENING = "\"'`(\u201c\u2018[\u00ab"
ABBREVIATIONS = """
    Mr Mrs Ms Mx Dr Prof St Sr Jr Rev Hon Gen Col Maj Capt Cpt Lt Sgt Cmdr Gov Sen Rep Messrs
    Mme Mlle Esq Mt Ft Nos Vol Fig Figs pp vs cf viz e.g i.e al ca approx
    Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec Inc Ltd Co Corp
"""
ABBREVIATION_SET = frozenset(ABBREVIATIONS.split())
MAX_ABBREVIATION = 8  # Characters of an abbreviation, at most.


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence of a text; between spans is only white space.

    A sentence ends with ``.``, ``!``, ``?`` or an ellipsis and closing quotes and brackets,
    followed by white space and a capital, a digit, or an opening quote or bracket. A full stop
    after a title (``Mr.``), a common abbreviation or an initial (``J.``, ``U.S.``) does not end a
    sentence. The rule is for languages with spaces and capitals; for others, put each sentence on a
    line.
    """
    starts = [0]
    ends = []
    for match in SENTENCE_END.finditer(text):
        next_character = match[2]
        begins_sentence = (
            next_character.isupper() or next_character.isdigit() or next_character in OPENING
        )
        if begins_sentence and not _is_abbreviation(text, match.start()):
            ends.append(match.start(1))
            starts.append(match.end())
    return list(zip(starts, [*ends, len(text)], strict=True))


def _is_abbreviation(text: str, end: int) -> bool:
    """Return whether the full stop at a position belongs to an abbreviation or initial."""
    if text[end] != "." or not text[end + 1].isspace():
        return False
    words = text[max(0, end - MAX_ABBREVIATION) : end].split()
    if not words:
        return False
    word = words[-1].lstrip(OPENING)
    if word in ABBREVIATION_SET:
        return True
    initial = word.rpartition(".")[2]
    return len(initial) == 1 and initial.isupper() and word != "I"
