"""The files in which sentence-transformers says how token vectors become one sentence vector."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct
from zoo.tokenizers.source_files import SourceFiles

MODULES, SENTENCE = "modules.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
POOLING_CONFIG = "1_Pooling/config.json"
# Before it had one name, the file that SENTENCE is now was called after the model's kind.
ANY_SENTENCE = "sentence_*_config.json"
POOLING_FILES: tuple[str, ...] = (MODULES, POOLING_CONFIG, ANY_SENTENCE, PROMPTS)  # patterns

# switch in 1_Pooling/config.json -> our mode, which is also the name in newer files
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
KINDS = ("Transformer", "Pooling", "Normalize")
ORDERS = (KINDS[:2], KINDS)


class Pooling(JsonStruct):
    """Computation of a sentence embedding from token embeddings, as in sentence-transformers.

    Attributes:
        mode: ``mean`` of the tokens, first token (``cls``), ``max``, ``mean_sqrt_len_tokens``,
            ``weightedmean`` (weights are positions) or ``lasttoken``.
        normalize: scale the embedding to unit length.
        max_tokens: maximum length of a text in tokens; ``None`` for that of the model.
        lowercase: lower-case the text before tokenization.
    """

    mode: Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"] = (
        "mean"
    )
    normalize: bool = False
    max_tokens: int | None = None
    lowercase: bool = False


def read_pooling(files: SourceFiles) -> Pooling | None:
    """Read how a checkpoint turns token vectors into a sentence vector.

    Args:
        files: a directory as sentence-transformers writes it.

    Returns:
        the pooling, or ``None`` where the directory has no ``modules.json``.

    Raises:
        SourceError: a file that ``modules.json`` names is missing.
        VerificationError: a file is malformed, or asks for something that is not implemented:
            another kind of module, several modes at once, a prompt before every text.
    """
    if not files.has(MODULES):
        return None
    modules = _modules(files)
    kinds = tuple(kind for kind, _ in modules)
    if kinds not in ORDERS:
        raise VerificationError(
            f"{files.path(MODULES)}: {', '.join(kinds)[:100] or 'no modules'}: not implemented",
            f"only {' or '.join(', '.join(order) for order in ORDERS)} is",
        )
    _refuse_prompt(files)
    folder = modules[0][1]
    if not files.path(folder or ".").is_dir():
        raise VerificationError(
            f"{files.path(MODULES)}: the folder {folder!r:.100} of its model is not there"
        )
    text = _text_options(files, _sentence_file(files, f"{folder}/" if folder else ""))
    mode: Any = _mode(files, f"{modules[1][1]}/config.json")
    return Pooling(mode=mode, normalize="Normalize" in kinds, **text)


def hub_pooling_files(pooling: Pooling, hidden_size: int) -> dict[str, bytes]:
    """Return the files that make sentence-transformers pool as we do.

    Args:
        pooling: what to describe.
        hidden_size: the length of a token vector.
    """
    folders = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(KINDS, folders, strict=True))
        if pooling.normalize or kind != "Normalize"
    ]
    switches = {key: mode == pooling.mode for key, mode in MODES.items()}
    text = {"max_seq_length": pooling.max_tokens, "do_lower_case": pooling.lowercase}
    return {
        MODULES: _encode(modules),
        POOLING_CONFIG: _encode({"word_embedding_dimension": hidden_size, **switches}),
        SENTENCE: _encode(text),
    }


def _modules(files: SourceFiles) -> list[tuple[str, str]]:
    """Return kind and folder of each module, in order."""
    found = files.parse(MODULES)
    where = str(files.path(MODULES))
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise VerificationError(f"{where} is not a list of modules")
    modules = []
    for each in found:
        kind, folder = each.get("type"), each.get("path")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise VerificationError(f"{where}: {each!r:.100} has no type and path")
        modules.append((kind.rsplit(".", 1)[-1], folder))
    return modules


def _mode(files: SourceFiles, name: str) -> str:
    config = files.json(name)
    where = str(files.path(name))
    stated: Any = config.get("pooling_mode")
    if stated is None:
        stated = [mode for key, mode in MODES.items() if _flag(config, key, where)] or "mean"
    modes = [stated] if isinstance(stated, str) else stated
    if not isinstance(modes, list) or any(mode not in MODES.values() for mode in modes):
        raise VerificationError(f"{where}: pooling_mode = {stated!r:.100} is not implemented")
    if len(modes) != 1:
        raise VerificationError(
            f"{where}: {' and '.join(modes)} at once are not implemented", "only one mode is"
        )
    return str(modes[0])


def _sentence_file(files: SourceFiles, folder: str) -> str:
    found = files.matching(folder + ANY_SENTENCE)
    if len(found) > 1 and folder + SENTENCE not in found:
        raise VerificationError(
            f"{files.directory} holds {' and '.join(found)}", "keep the one that is meant"
        )
    return found[0] if len(found) == 1 else folder + SENTENCE


def _text_options(files: SourceFiles, name: str) -> dict[str, Any]:
    config = files.json_if_any(name)
    where = str(files.path(name))
    limit = config.get("max_seq_length")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise VerificationError(f"{where}: max_seq_length = {limit!r:.100} is no number of tokens")
    return {"max_tokens": limit, "lowercase": _flag(config, "do_lower_case", where)}


def _refuse_prompt(files: SourceFiles) -> None:
    """A prompt that is put before every text changes every vector."""
    config = files.json_if_any(PROMPTS)
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    if name is None:
        return
    if not isinstance(name, str) or not isinstance(prompts, dict) or prompts.get(name) != "":
        raise VerificationError(
            f"{files.path(PROMPTS)}: default_prompt_name = {name!r:.100} is not implemented",
            "vectors of texts without the prompt would be others",
        )


def _flag(config: Mapping[str, Any], key: str, where: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise VerificationError(f"{where}: {key} = {value!r:.100} is neither true nor false")
    return bool(value)


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
