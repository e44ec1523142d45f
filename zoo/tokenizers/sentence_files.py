"""Files of sentence-transformers that describe a sentence encoder, read and written.

A table for each file says what becomes of its keys. An unknown key is refused, as it may change
embeddings. Modules after ``Pooling`` other than ``Normalize`` are refused by name.
"""

from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, get_args

from zoo.errors import VerificationError
from zoo.io.file_keys import FileKeys, Treatment, carried, honoured, refused, written_anew
from zoo.io.json import dump_json
from zoo.tokenizers.pooling import Pooling, PoolingMode, SimilarityFunction
from zoo.tokenizers.source_files import SourceFiles

MODULES, SENTENCE = "modules.json", "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
POOLING_CONFIG, NORMALIZE_CONFIG = "1_Pooling/config.json", "2_Normalize/config.json"
# Older versions name the file SENTENCE after the kind of the model.
ANY_SENTENCE = "sentence_*_config.json"
# patterns
POOLING_FILES: tuple[str, ...] = (
    *(MODULES, POOLING_CONFIG, NORMALIZE_CONFIG, ANY_SENTENCE),
    SETTINGS,
)

# flag in 1_Pooling/config.json -> mode, which newer files name directly
MODES: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
PACKAGE, CROSS_ENCODER = "sentence_transformers", "CrossEncoder"
KINDS = ("Transformer", "Pooling", "Normalize")
ORDERS = (KINDS[:2], KINDS)
IMPLICIT_PROMPTS = ("query", "document")  # sentence-transformers gives every model these, empty
ARGUMENTS = (
    *("model_args", "model_kwargs", "config_args", "config_kwargs"),
    *("tokenizer_args", "processor_kwargs"),
)
HARMLESS_ARGUMENTS = frozenset({"attn_implementation", "trust_remote_code"})

SETTINGS_KEYS: FileKeys = {
    "model_type": refused("kinds of models except `SentenceTransformer` and `CrossEncoder`"),
    "prompts": honoured("texts that precede an input, by name"),
    "default_prompt_name": honoured("the prompt of an input for which none is chosen"),
    "similarity_fn_name": honoured("`cosine`, `dot`, or the negative of a distance"),
    "truncate_dim": honoured("the number of leading dimensions that are kept"),
    "requirements": carried("versions of packages that sentence-transformers checks"),
    "__version__": carried("provenance"),
    "activation_fn": refused("functions of cross-encoders except identity and sigmoid"),
    "keep_in_fp32_modules": refused("layers of cross-encoders that run in float32"),
    "max_active_dims": refused("the number of values of a sparse encoder"),
}
MODULES_KEYS: FileKeys = {
    "idx": written_anew("the place in the list, which decides"),
    "name": written_anew("the place in the list"),
    "path": written_anew("the folder of the module"),
    "type": refused("modules except `Transformer`, `Pooling` and `Normalize`, in this order"),
    "kwargs": refused("arguments of an input that a module reads"),
}
SENTENCE_KEYS: FileKeys = {
    "max_seq_length": honoured("the number of tokens that texts are truncated to"),
    "do_lower_case": honoured("texts are lower-cased"),
    "transformer_task": refused("outputs except hidden states, `feature-extraction`"),
    "modality_config": refused("inputs except texts, and outputs except the last hidden state"),
    "module_output_name": refused("outputs except `token_embeddings`"),
    "processing_kwargs": refused("arguments of the tokenizer"),
    "unpad_inputs": carried("a speed setting, results are equal"),
    "query_length": refused("a limit of queries only"),
    "document_length": refused("a limit of documents only"),
    "query_expansion": refused("mask tokens after queries"),
    "tokenizer_name_or_path": refused("a tokenizer of another directory"),
    **dict.fromkeys(
        ARGUMENTS, refused("arguments except `attn_implementation` and `trust_remote_code`")
    ),
}
POOLING_KEYS: FileKeys = {
    "embedding_dimension": written_anew("the hidden size of the model"),
    "word_embedding_dimension": written_anew("another name of `embedding_dimension`"),
    "pooling_mode": honoured("one mode; several at once are refused"),
    **{key: honoured(f"`pooling_mode`: `{mode}`") for key, mode in MODES.items()},
    "include_prompt": honoured("whether the tokens of a prompt are pooled"),
}
NORMALIZE_KEYS: FileKeys = {
    "module_input_name": refused("inputs except `sentence_embedding`"),
    "module_output_name": refused("outputs except `sentence_embedding`"),
}
# key that is refused -> the values that mean what is implemented
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("SentenceTransformer", None),
    "kwargs": (None, [], {}),
    "transformer_task": ("feature-extraction",),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
    "module_output_name": ("token_embeddings",),
    "processing_kwargs": (None, {}),
}
EMBEDDING_NAMES = {key: ("sentence_embedding", None) for key in NORMALIZE_KEYS}


def read_pooling(files: SourceFiles) -> Pooling | None:
    """Read the settings of a sentence encoder."""
    if not files.has(MODULES):
        return None
    settings = files.json_if_any(SETTINGS)
    if settings.get("model_type") == CROSS_ENCODER:
        return None
    extra = {SETTINGS: check_keys(settings, SETTINGS_KEYS, str(files.path(SETTINGS)))}
    modules = _modules(files)
    kinds = tuple(kind for kind, _ in modules)
    if kinds not in ORDERS:
        raise VerificationError(
            f"{files.path(MODULES)}: {', '.join(kinds)[:100] or 'no modules'}: not implemented",
            f"only {' or '.join(', '.join(order) for order in ORDERS)} is",
        )
    folder = modules[0][1]
    if not files.path(folder or ".").is_dir():
        raise VerificationError(
            f"{files.path(MODULES)}: the folder {folder!r:.100} of its model is not there"
        )
    prefix = f"{folder}/" if folder else ""
    found = files.matching(prefix + ANY_SENTENCE)
    if len(found) > 1 and prefix + SENTENCE not in found:
        raise VerificationError(f"{files.directory} holds {' and '.join(found)}", "keep only one")
    name = found[0] if len(found) == 1 else prefix + SENTENCE
    sentence = files.json_if_any(name)
    extra[SENTENCE] = check_keys(sentence, SENTENCE_KEYS, str(files.path(name)))
    if len(modules) > 2:
        normalize = f"{modules[2][1]}/config.json"
        names = files.json_if_any(normalize)
        check_keys(names, NORMALIZE_KEYS, str(files.path(normalize)), EMBEDDING_NAMES)
    origin = str(files.path(name))
    return Pooling(
        max_tokens=_count(sentence, "max_seq_length", origin),
        lowercase=_flag(sentence, "do_lower_case", origin),
        normalize="Normalize" in kinds,
        extra={file: keys for file, keys in extra.items() if keys},
        **_pooling_options(files, f"{modules[1][1]}/config.json"),
        **_settings(settings, str(files.path(SETTINGS))),
    )


def module_kinds(files: SourceFiles) -> tuple[str, ...]:
    """Return the kind of each module, in order."""
    return tuple(kind for kind, _ in _modules(files))


def check_keys(
    config: Mapping[str, Any],
    keys: FileKeys,
    origin: str,
    accepted: Mapping[str, tuple[Any, ...]] = ACCEPTED,
) -> dict[str, Any]:
    """Check that the keys of a file are known, and that none asks for what is not implemented."""
    for key, value in config.items():
        if key not in keys:
            continue
        allowed = accepted.get(key, (None,))
        if key in ARGUMENTS:
            known = isinstance(value, dict) and value.keys() <= HARMLESS_ARGUMENTS
            allowed = (None, value) if known else (None,)
        if keys[key].treatment is Treatment.REFUSED and value not in allowed:
            values = " or ".join(map(repr, allowed))
            raise VerificationError(
                f"{origin}: {key} = {shown(value)} is not implemented",
                f"only {' and '.join(sorted(HARMLESS_ARGUMENTS))} are"
                if key in ARGUMENTS
                else f"only {values} is",
            )
    for key in config.keys() - keys.keys():
        raise VerificationError(
            f"{origin}: the key {key!r:.100} is unknown", "remove it if results do not depend on it"
        )
    kept = (Treatment.CARRIED, Treatment.REFUSED)  # of the latter, what is accepted
    return {key: value for key, value in config.items() if keys[key].treatment in kept}


def hub_pooling_files(pooling: Pooling, hidden_size: int) -> dict[str, bytes]:
    """Return the files with which sentence-transformers computes the same embeddings."""
    folders = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(KINDS, folders, strict=True))
        if pooling.normalize or kind != "Normalize"
    ]
    switches = {key: mode == pooling.mode for key, mode in MODES.items()}
    if not pooling.include_prompt:
        switches["include_prompt"] = False
    text = {"max_seq_length": pooling.max_tokens, "do_lower_case": pooling.lowercase}
    settings = {
        "prompts": pooling.prompts,
        "default_prompt_name": pooling.default_prompt_name,
        "similarity_fn_name": pooling.similarity_fn_name,
        **({} if pooling.truncate_dim is None else {"truncate_dim": pooling.truncate_dim}),
    }
    return {
        MODULES: _encode(modules),
        POOLING_CONFIG: _encode({"word_embedding_dimension": hidden_size, **switches}),
        SENTENCE: _encode({**text, **pooling.extra.get(SENTENCE, {})}),
        SETTINGS: _encode({**settings, **pooling.extra.get(SETTINGS, {})}),
    }


def _modules(files: SourceFiles) -> list[tuple[str, str]]:
    """Return kind and folder of each module, in order; a kind of another package has its name."""
    content = files.parse(MODULES)
    origin = str(files.path(MODULES))
    if not isinstance(content, list) or not all(isinstance(module, dict) for module in content):
        raise VerificationError(f"{origin} is not a list of modules")
    modules = []
    for module in content:
        kind, folder = module.get("type"), module.get("path")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise VerificationError(f"{origin}: {module!r:.100} has no type and path")
        check_keys({k: v for k, v in module.items() if k != "type"}, MODULES_KEYS, origin)
        package, _, name = kind.rpartition(".")
        modules.append((name if package.split(".")[0] == PACKAGE else kind, folder))
    return modules


def _pooling_options(files: SourceFiles, name: str) -> dict[str, Any]:
    config = files.json(name)
    origin = str(files.path(name))
    check_keys(config, POOLING_KEYS, origin)
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
    return {"mode": modes[0], "include_prompt": _flag(config, "include_prompt", origin, True)}


def _settings(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return prompts, similarity and size of embeddings."""
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        raise VerificationError(f"{origin}: prompts = {shown(prompts)} are not names and texts")
    default = config.get("default_prompt_name")
    if default is not None and default not in (*prompts, *IMPLICIT_PROMPTS):
        raise VerificationError(
            f"{origin}: default_prompt_name = {default!r:.100} is not one of the prompts",
            f"they are {', '.join(prompts)}" if prompts else "there are none",
        )
    function = config.get("similarity_fn_name") or "cosine"
    if function not in get_args(SimilarityFunction):
        raise VerificationError(
            f"{origin}: similarity_fn_name = {function!r:.100} is not implemented",
            f"only {', '.join(get_args(SimilarityFunction))} are",
        )
    return {
        "prompts": {name: text or "" for name, text in prompts.items()},
        "default_prompt_name": default,
        "similarity_fn_name": function,
        "truncate_dim": _count(config, "truncate_dim", origin),
    }


def _count(config: Mapping[str, Any], key: str, origin: str) -> int | None:
    value = config.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise VerificationError(f"{origin}: {key} = {value!r:.100} is not a positive number")
    return value


def _flag(config: Mapping[str, Any], key: str, origin: str, default: bool = False) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise VerificationError(f"{origin}: {key} = {value!r:.100} is neither true nor false")
    return default if value is None else value


def _encode(value: Any) -> bytes:
    return dump_json(value, indent=2, ensure_ascii=False).encode() + b"\n"
