"""Pooling configuration of sentence encoders, in the files of sentence-transformers."""

from collections.abc import Mapping
from typing import Any, Literal

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct, dump_json
from zoo.tokenizers.source_files import SourceFiles

MODULES, SENTENCE = "modules.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
POOLING_CONFIG = "1_Pooling/config.json"
# Older versions name the file SENTENCE after the kind of the model.
ANY_SENTENCE = "sentence_*_config.json"
POOLING_FILES: tuple[str, ...] = (MODULES, POOLING_CONFIG, ANY_SENTENCE, PROMPTS)  # patterns

# flag in 1_Pooling/config.json -> mode, which newer files name directly
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SimilarityFunction = Literal["cosine", "dot", "euclidean", "manhattan"]
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
    """Read the pooling of a sentence encoder.

    Args:
        files: directory in the layout of sentence-transformers.

    Returns:
        the pooling, or ``None`` if the directory has no ``modules.json``.

    Raises:
        SourceError: a file that ``modules.json`` names is missing.
        VerificationError: a file is malformed or not supported: another kind of module, several
            modes at once, or a default prompt.
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
    """Return the files with which sentence-transformers computes the same pooling.

    Args:
        pooling: pooling to describe.
        hidden_size: size of a token embedding.
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
    content = files.parse(MODULES)
    origin = str(files.path(MODULES))
    if not isinstance(content, list) or not all(isinstance(module, dict) for module in content):
        raise VerificationError(f"{origin} is not a list of modules")
    modules = []
    for module in content:
        kind, folder = module.get("type"), module.get("path")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise VerificationError(f"{origin}: {module!r:.100} has no type and path")
        modules.append((kind.rsplit(".", 1)[-1], folder))
    return modules


def _mode(files: SourceFiles, name: str) -> str:
    config = files.json(name)
    origin = str(files.path(name))
    stated: Any = config.get("pooling_mode")
    if stated is None:
        stated = [mode for key, mode in MODES.items() if _flag(config, key, origin)] or "mean"
    modes = [stated] if isinstance(stated, str) else stated
    if not isinstance(modes, list) or any(mode not in MODES.values() for mode in modes):
        raise VerificationError(f"{origin}: pooling_mode = {stated!r:.100} is not implemented")
    if len(modes) != 1:
        raise VerificationError(
            f"{origin}: {' and '.join(modes)} at once are not implemented", "only one mode is"
        )
    return str(modes[0])


def _sentence_file(files: SourceFiles, folder: str) -> str:
    content = files.matching(folder + ANY_SENTENCE)
    if len(content) > 1 and folder + SENTENCE not in content:
        raise VerificationError(f"{files.directory} holds {' and '.join(content)}", "keep only one")
    return content[0] if len(content) == 1 else folder + SENTENCE


def _text_options(files: SourceFiles, name: str) -> dict[str, Any]:
    config = files.json_if_any(name)
    origin = str(files.path(name))
    limit = config.get("max_seq_length")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise VerificationError(f"{origin}: max_seq_length = {limit!r:.100} is no number of tokens")
    return {"max_tokens": limit, "lowercase": _flag(config, "do_lower_case", origin)}


def _refuse_prompt(files: SourceFiles) -> None:
    """Raise an error for a default prompt, which changes every embedding."""
    config = files.json_if_any(PROMPTS)
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    if name is None:
        return
    if not isinstance(name, str) or not isinstance(prompts, dict) or prompts.get(name) != "":
        raise VerificationError(
            f"{files.path(PROMPTS)}: default_prompt_name = {name!r:.100} is not implemented",
            "vectors of texts without the prompt would be others",
        )


def _flag(config: Mapping[str, Any], key: str, origin: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise VerificationError(f"{origin}: {key} = {value!r:.100} is neither true nor false")
    return bool(value)


def _encode(value: Any) -> bytes:
    return dump_json(value, indent=2).encode() + b"\n"
