"""Search for a regular expression, as a program of its own that can be stopped.

Python's regular expressions have no limit on time, and a search cannot be interrupted. This file
only imports the standard library, so that it starts in some milliseconds.
"""

import json
import re
import sys
from collections.abc import Sequence


def last_matches(pattern: str, texts: Sequence[str]) -> list[str | None]:
    """Return the first group, or the full match, of the last match in each text."""
    expression = re.compile(pattern, re.DOTALL)
    group = min(expression.groups, 1)
    answers = []
    for text in texts:
        answer = None
        for match in expression.finditer(text):
            # A group that takes no part in a match is ``None``.
            answer = match.group(group)
        answers.append(answer)
    return answers


if __name__ == "__main__":
    request = json.load(sys.stdin)
    answers = last_matches(request["pattern"], request["texts"])
    json.dump(answers, sys.stdout, allow_nan=False)
