"""Tokenizer files of a directory in the Hub's layout, as ``from_pretrained`` reads them."""

import json
from collections.abc import Mapping, Sequence
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
    """Return the tokenizer files of a directory in the Hub's layout.

    ``tokenizer.json`` is copied, with the truncation and padding of the source.
    """
    tokenizer = json.loads(tokenizer_json)
    roles = {f"{role}_token": token for role, token in info.special.items()}
    config: dict[str, Any] = {}
    if padding_side != "right":
        config["padding_side"] = padding_side
    config |= info.extra_config
    # This class applies no options to ``tokenizer.json``, so that the ids are the same.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["clean_up_tokenization_spaces"] = False
    if info.max_tokens:
        config["model_max_length"] = info.max_tokens
    config["model_input_names"] = _input_names(tokenizer, info, inputs)
    # A side that is not the default, or overrides ``tokenizer.json``, has to be stated.
    if info.truncation_side != "right" or "truncation" in info.sections:
        config["truncation_side"] = info.truncation_side
    if info.split_special_tokens:
        config["split_special_tokens"] = True
    # Options of the normalizer are for users who load another class.
    normalizer = tokenizer.get("normalizer") or {}
    for key, (name, _) in OPTIONS.items():
        if name in normalizer:
            config[key] = normalizer[name]
    config |= roles
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


def _input_names(
    tokenizer: Mapping[str, Any], info: TokenizerInfo, inputs: Sequence[str] | None
) -> list[str]:
    """Return the inputs of the model that the tokenizer makes."""
    if inputs:
        names = list(inputs)
    elif sets_token_types(tokenizer.get("post_processor") or {}):
        names = ["input_ids", "token_type_ids", "attention_mask"]
    else:
        names = ["input_ids", "attention_mask"]
    if not info.token_types and "token_type_ids" in names:
        names.remove("token_type_ids")
    return names


def hub_token_ids(tokenizer_json: bytes, info: TokenizerInfo) -> dict[str, int]:
    """Return the token ids ``bos_token_id`` and so on for the Hub's ``config.json``."""
    # Generation uses these; without them, transformers uses the defaults of the model class
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    named = {role: info.special[role] for role in ("bos", "eos") if role in info.special}
    token_ids = {f"{role}_token_id": tokenizer.token_to_id(token) for role, token in named.items()}
    return {name: number for name, number in token_ids.items() if number is not None}
