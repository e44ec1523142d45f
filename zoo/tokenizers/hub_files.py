"""Tokenizer files of a directory in the Hub's layout, as ``from_pretrained`` reads them."""

import json
from collections.abc import Sequence
from typing import Any

from zoo.io.json import encode_hub_json
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.source_files import (
    SPECIAL_TOKENS,
    TARGET_TOKENIZER_JSON,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
)
from zoo.tokenizers.targets import unpack
from zoo.tokenizers.template import sets_token_types
from zoo.tokenizers.wordpiece import OPTIONS


def hub_tokenizer_files(
    tokenizer_json: bytes,
    info: TokenizerInfo,
    *,
    inputs: Sequence[str] | None = None,
    padding_side: str = "right",
) -> dict[str, bytes]:
    """Return the tokenizer files of a directory in the Hub's layout."""
    # ``tokenizer.json`` is copied, with the truncation and padding of the source, and
    # ``tokenizer_class`` is a class that applies no options to it, so that the ids are the same.
    # The options are also written, for users who load another class
    tokenizer = json.loads(tokenizer_json)
    normalizer = tokenizer.get("normalizer") or {}
    # token types are an input if the tokenizer sets more than one
    types = ("token_type_ids",) * sets_token_types(tokenizer.get("post_processor") or {})
    # the side is stated if it is not the default, or overrides ``tokenizer.json``
    states_side = info.truncation_side != "right" or "truncation" in info.sections
    roles = {f"{role}_token": token for role, token in info.special.items()}
    config: dict[str, Any] = {
        **({"padding_side": padding_side} if padding_side != "right" else {}),
        **info.extra_config,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **({"model_max_length": info.max_tokens} if info.max_tokens else {}),
        "model_input_names": [
            name
            for name in inputs or ("input_ids", *types, "attention_mask")
            if info.token_types or name != "token_type_ids"
        ],
        **({"truncation_side": info.truncation_side} if states_side else {}),
        **({"split_special_tokens": True} if info.split_special_tokens else {}),
        **{key: normalizer[name] for key, (name, _) in OPTIONS.items() if name in normalizer},
        **roles,
    }
    if info.splitter is not None:
        return info.splitter.hub_files(tokenizer, config)
    if info.sections:
        tokenizer_json = encode_hub_json({**tokenizer, **info.sections})
    files = {
        TOKENIZER_JSON: tokenizer_json,
        TOKENIZER_CONFIG: encode_hub_json(config),
        SPECIAL_TOKENS: encode_hub_json(roles),
    }
    if info.targets is not None:
        files[TARGET_TOKENIZER_JSON] = unpack(info.targets, TARGET_TOKENIZER_JSON)
    return files


def hub_token_ids(tokenizer_json: bytes, info: TokenizerInfo) -> dict[str, int]:
    """Return the token ids ``bos_token_id`` and so on for the Hub's ``config.json``."""
    # Generation uses these; without them, transformers uses the defaults of the model class
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    named = {role: info.special[role] for role in ("bos", "eos") if role in info.special}
    token_ids = {f"{role}_token_id": tokenizer.token_to_id(token) for role, token in named.items()}
    return {name: number for name, number in token_ids.items() if number is not None}
