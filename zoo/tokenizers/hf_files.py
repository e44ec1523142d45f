"""Our tokenizer in the files that ``from_pretrained`` of the Hub's tools looks for."""

import json
from collections.abc import Sequence
from typing import Any

from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.source_files import SPECIAL_TOKENS, TOKENIZER_CONFIG, TOKENIZER_JSON
from zoo.tokenizers.wordpiece import OPTIONS


def hub_tokenizer_files(
    tokenizer_json: bytes, info: TokenizerInfo, *, inputs: Sequence[str] | None = None
) -> dict[str, bytes]:
    """Return the tokenizer files of a directory in the Hub's layout.

    ``tokenizer.json`` goes out as it is, under the name of the class that takes it as it stands,
    so that the ids are ours. Options are repeated for those who ask for another class.

    Args:
        tokenizer_json: our ``tokenizer.json``.
        info: what that file does not say.
        inputs: names of what the model takes; by default token types are among them if the
            tokenizer tells the texts of a pair apart by type.
    """
    tokenizer = json.loads(tokenizer_json)
    roles = {f"{role}_token": token for role, token in info.special.items()}
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **({"model_max_length": info.max_tokens} if info.max_tokens else {}),
        "model_input_names": list(inputs or _inputs(tokenizer)),
        **_options(tokenizer),
        **roles,
    }
    return {
        TOKENIZER_JSON: tokenizer_json,
        TOKENIZER_CONFIG: _encode(config),
        SPECIAL_TOKENS: _encode(roles),
    }


def hub_token_ids(tokenizer_json: bytes, info: TokenizerInfo) -> dict[str, int]:
    """Return the tokens that begin and end a text as the Hub's ``config.json`` names them.

    Generation there begins and ends with these, or with those of the first published model of the
    kind where a configuration is silent.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    named = {role: info.special[role] for role in ("bos", "eos") if role in info.special}
    found = {f"{role}_token_id": tokenizer.token_to_id(token) for role, token in named.items()}
    return {name: number for name, number in found.items() if number is not None}


def _inputs(tokenizer: dict[str, Any]) -> list[str]:
    """What a tokenizer has to say: token types only if there is more than one."""
    typed = _typed(tokenizer.get("post_processor") or {})
    return ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]


def _typed(ends: dict[str, Any]) -> bool:
    """Whether what is put around the texts of a pair tells them apart by type."""
    if any(_typed(part) for part in ends.get("processors") or ()):
        return True
    if any(part.get("type_id") for piece in ends.get("pair") or () for part in piece.values()):
        return True
    # the older kind of ends has no template, and always counts types
    return "sep" in ends and "trim_offsets" not in ends


def _options(tokenizer: dict[str, Any]) -> dict[str, Any]:
    normalizer = tokenizer.get("normalizer") or {}
    return {key: normalizer[ours] for key, (ours, _) in OPTIONS.items() if ours in normalizer}


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
