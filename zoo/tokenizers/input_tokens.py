"""Start, delimiter and extract tokens around texts, added to a tokenizer that has no template."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer_json import parse


class InputTokens(NamedTuple):
    """Tokens around a text or a pair of texts."""

    start: str  # before the first text
    delimiter: str  # between two texts
    extract: str  # after the last text


def with_input_tokens(content: bytes, info: TokenizerInfo, tokens: InputTokens) -> bytes:
    """Return a ``tokenizer.json`` with a template of tokens, which are added to the vocabulary.

    The inputs are those of Radford et al. 2018, section 3.3: ``start A extract`` for one text, and
    ``start A delimiter B extract`` for two. A classifier of the last token reads the extract
    token.
    """
    from tokenizers import AddedToken

    if len(set(tokens)) < len(tokens) or not all(tokens):
        raise UsageError(f"the input tokens are {', '.join(tokens)}", "give three different ones")
    present_tokens = [info.special[role] for role in ("cls", "sep") if role in info.special]
    if present_tokens:
        raise UsageError(
            f"the tokenizer puts {' and '.join(present_tokens)} around texts already",
            "leave out task_args.input_tokens",
        )
    tokenizer = parse(content, Path("tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens])
    definition = json.loads(tokenizer.to_str())
    processor = definition["post_processor"] or {"type": "Sequence", "processors": []}
    steps = processor["processors"] if processor["type"] == "Sequence" else [processor]
    other_steps = [step for step in steps if step["type"] != "TemplateProcessing"]
    special_tokens = {}
    for token in tokens:
        number = tokenizer.token_to_id(token)
        special_tokens[token] = {"id": token, "ids": [number], "tokens": [token]}

    def special(token: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    first_text = {"Sequence": {"id": "A", "type_id": 0}}
    second_text = {"Sequence": {"id": "B", "type_id": 0}}
    start, delimiter, extract = map(special, tokens)
    template = {
        "type": "TemplateProcessing",
        "single": [start, first_text, extract],
        "pair": [start, first_text, delimiter, second_text, extract],
        "special_tokens": special_tokens,
    }
    definition["post_processor"] = {"type": "Sequence", "processors": [*other_steps, template]}
    return dump_json(definition, ensure_ascii=False, indent=2).encode()
