"""Our tokenizer in the files that ``from_pretrained`` of the Hub's tools looks for."""

import json
from typing import Any

from zoo.checkpoint import TokenizerInfo
from zoo.tokenization.files import SPECIAL_TOKENS, TOKENIZER_CONFIG, TOKENIZER_JSON
from zoo.tokenization.wordpiece import OPTIONS


def hub_tokenizer_files(tokenizer_json: bytes, info: TokenizerInfo) -> dict[str, bytes]:
    """Return the tokenizer files of a directory in the Hub's layout.

    ``tokenizer.json`` goes out as it is, under the name of the class that takes it as it stands,
    so that the ids are ours. Options are repeated for those who ask for another class.

    Args:
        tokenizer_json: our ``tokenizer.json``.
        info: what that file does not say.
    """
    roles = {f"{role}_token": token for role, token in info.special.items()}
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **({"model_max_length": info.max_tokens} if info.max_tokens else {}),
        **_options(json.loads(tokenizer_json)),
        **roles,
    }
    return {
        TOKENIZER_JSON: tokenizer_json,
        TOKENIZER_CONFIG: _encode(config),
        SPECIAL_TOKENS: _encode(roles),
    }


def _options(tokenizer: dict[str, Any]) -> dict[str, Any]:
    normalizer = tokenizer.get("normalizer") or {}
    return {key: normalizer[ours] for key, (ours, _) in OPTIONS.items() if ours in normalizer}


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
