"""Files of sentence-transformers that describe a sentence encoder, read and written."""

import posixpath
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, get_args

import msgspec

from zoo.errors import UsageError, VerificationError
from zoo.io.file_keys import FileKeys, Precedence, carried, honoured, refused, written_anew
from zoo.io.json import encode_hub_json
from zoo.io.limits import MAX_MODULES
from zoo.io.sizes import check_size
from zoo.sentence_models.module_files import (
    LOGIT_SCORE,
    MODULE_KEYS,
    PACKAGES,
    REFUSED_MODULES,
    check_keys,
    count,
    flag,
    module_config,
    read_by,
    read_module,
)
from zoo.sentence_models.modules import (
    MODULE_WEIGHTS,
    SENTENCE_VECTOR,
    TOKENS,
    UNKNOWN,
    AnyModule,
    Feature,
    Features,
    NormalizeModule,
    PoolingModule,
    final_features,
    module_folder,
)
from zoo.sentence_models.pooling import (
    SIMILARITIES,
    EncoderType,
    Pooling,
    QueryExpansion,
    is_usual,
)
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import read_sections

MODULES = "modules.json"
SENTENCE = "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
# Older versions name the file SENTENCE after the kind of the model.
ANY_SENTENCE = "sentence_*_config.json"
# patterns
POOLING_FILES: tuple[str, ...] = (
    MODULES,
    ANY_SENTENCE,
    SETTINGS,
    *(f"[0-9]*_{class_name}/config.json" for class_name in (*MODULE_KEYS, LOGIT_SCORE)),
    "artifact.metadata",  # of Stanford's ColBERT
)
# weights of modules, the preferred file of a folder first
MODULE_FILES = tuple(
    f"[0-9]*_{class_name}/{name}"
    for name in (MODULE_WEIGHTS, "pytorch_model.bin")
    for class_name in ("Dense", "LayerNorm")
)

PACKAGE = "sentence_transformers"
CROSS_ENCODER = "CrossEncoder"
# A first module whose code is in the repository, and which selects a task of the model; see
# ``Family.prompt_types``.
TASK_TRANSFORMER = "custom_st.Transformer"
BACKBONES = ("Transformer", TASK_TRANSFORMER, "MLMTransformer")
STATIC = "StaticEmbedding"  # a table of vectors, and their mean
FILL_MASK = "fill-mask"
IMPLICIT_PROMPTS = ("query", "document")  # sentence-transformers gives every model these, empty
ARGUMENTS = (
    "model_args",
    "model_kwargs",
    "config_args",
    "config_kwargs",
    "tokenizer_args",
    "processor_kwargs",
)
HARMLESS_ARGUMENTS = frozenset({"attn_implementation", "trust_remote_code"})

_PYLATE_KEYS = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "skiplist_words",
    "do_query_expansion",
    "query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
)
SETTINGS_KEYS: FileKeys = {
    "model_type": honoured(
        "`SentenceTransformer`, `SparseEncoder`, `MultiVectorEncoder` or `CrossEncoder`"
    ),
    "prompts": honoured("texts that precede an input, by name"),
    "default_prompt_name": honoured("the prompt of an input for which none is chosen"),
    "similarity_fn_name": honoured(
        "`cosine`, `dot`, the negative of a distance, or `maxsim` of vectors of tokens"
    ),
    "truncate_dim": honoured("the number of leading dimensions that are kept"),
    "requirements": carried("versions of packages that sentence-transformers checks"),
    "__version__": carried("provenance"),
    "activation_fn": refused("of cross-encoders, functions that are not in a list of `torch.nn`"),
    "keep_in_fp32_modules": refused("layers of cross-encoders that run in float32"),
    "max_active_dims": honoured("the number of weights that a sparse encoder keeps"),
    **dict.fromkeys(_PYLATE_KEYS, refused("settings of PyLate, in a model of another type")),
}
MODULES_KEYS: FileKeys = {
    "idx": written_anew("the place in the list, which decides"),
    "name": written_anew("the place in the list"),
    "path": written_anew("the folder of the module"),
    "type": honoured("`Transformer` or `MLMTransformer`, and the modules below"),
    "kwargs": refused("arguments of an input that a module reads"),
}
SENTENCE_KEYS: FileKeys = {
    "max_seq_length": honoured("the number of tokens that texts are truncated to"),
    "do_lower_case": honoured("texts are lower-cased"),
    "transformer_task": honoured(
        "`feature-extraction` or `fill-mask`: hidden states or logits; `text-generation` in a "
        "cross-encoder with `LogitScore`"
    ),
    "modality_config": refused("inputs except texts, and outputs except that of the task"),
    "module_output_name": refused(
        "outputs except `token_embeddings`, and `scores` or `causal_logits` of cross-encoders"
    ),
    "processing_kwargs": refused(
        "arguments of the tokenizer, except `add_generation_prompt` of the chat template of a "
        "cross-encoder"
    ),
    "unpad_inputs": carried("a speed setting, results are equal"),
    "query_length": honoured("the number of tokens that queries are truncated to"),
    "document_length": honoured("the number of tokens that documents are truncated to"),
    "query_expansion": honoured("mask tokens after queries, which late interaction compares"),
    "tokenizer_name_or_path": refused("a tokenizer of another directory"),
    **dict.fromkeys(
        ARGUMENTS, refused("arguments except `attn_implementation` and `trust_remote_code`")
    ),
}
SENTENCE_PRECEDENCE = (
    Precedence(
        "the longest text or pair",
        (
            f"`max_seq_length` of `{SENTENCE}`",
            "`model_max_length` of `tokenizer_config.json`",
            "`max_len` of `tokenizer_config.json`",
        ),
        "the first that is there, even if it is larger than the others; at most the model's "
        "positions. `truncation` of `tokenizer.json` is not a limit, except for static embeddings",
    ),
    Precedence(
        "the longest query or document",
        (
            "`query_length` and `document_length`",
            f"`max_seq_length` of `{SENTENCE}`",
            "`model_max_length` of `tokenizer_config.json`",
        ),
        "the first that is there; `length` of `query_expansion` with the strategy `fixed` is the "
        "length of a query, whatever the others are",
    ),
    Precedence(
        "the prompt of a query or document",
        (
            "the prompt of the role: `query`; `document`, `passage` or `corpus`",
            "`default_prompt_name`",
        ),
        "a query or document without a prompt of its role has none; other texts have the default",
    ),
    Precedence(
        "lower case of a sentence encoder",
        (
            f"`do_lower_case` of `{SENTENCE}`",
            "`do_lower_case` of `tokenizer_config.json`",
        ),
        "either makes texts lower-case: the former before the tokenizer's own normalizer. Added "
        "tokens stay as they are",
    ),
)
# Refused key -> the values that mean what is implemented.
ACCEPTED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "kwargs": (None, [], {}),
    "module_output_name": (TOKENS,),
    "processing_kwargs": (None, {}),
}
OUTPUTS: Mapping[str, Any] = {"feature-extraction": "last_hidden_state", FILL_MASK: "logits"}


def read_pooling(files: SourceFiles) -> Pooling | None:
    """Read the settings of a sentence encoder.

    A table for each file says what becomes of its keys. An unknown key is refused, as it may
    change embeddings. A module that is not implemented is refused by name.
    """
    if not files.has(MODULES):
        return None
    settings = files.json_if_any(SETTINGS)
    if settings.get("model_type") == CROSS_ENCODER:
        return None
    extra = {SETTINGS: _check(settings, SETTINGS_KEYS, str(files.path(SETTINGS)))}
    (backbone, folder), *modules = _modules(files) or [("no modules", "")]
    if backbone == TASK_TRANSFORMER:
        first_module = files.parse(MODULES)[0]
        names = ("type", "kwargs")
        extra[MODULES] = {name: first_module[name] for name in names if name in first_module}
    if backbone not in (*BACKBONES, STATIC):
        raise VerificationError(
            f"{files.path(MODULES)}: {_described(backbone)} is not implemented as the first module",
            f"only {', '.join(BACKBONES)} and {STATIC} are",
        )
    if not files.path(folder or ".").is_dir():
        raise VerificationError(
            f"{files.path(MODULES)}: the folder {folder!r:.100} of its model is not there"
        )
    options = _settings(settings, str(files.path(SETTINGS)))
    if backbone == STATIC:
        return _read_static(files, modules, extra, options, settings)
    name, sentence = _sentence(files, folder)
    origin = str(files.path(name))
    default_task = FILL_MASK if backbone == "MLMTransformer" else "feature-extraction"
    task = sentence.get("transformer_task", default_task)
    if not isinstance(task, str) or task not in OUTPUTS:
        raise VerificationError(
            f"{origin}: transformer_task = {shown(task)} is not implemented",
            f"only {' and '.join(OUTPUTS)} are",
        )
    modality_config = _modality_config(OUTPUTS[task])
    extra[SENTENCE] = _check(sentence, SENTENCE_KEYS, origin, modality_config=(modality_config,))
    # Older versions do not write these keys: they are written back only if they were there.
    if "model_type" in settings:
        extra[SETTINGS]["model_type"] = settings["model_type"]
    if "transformer_task" in sentence:
        extra[SENTENCE]["transformer_task"] = sentence["transformer_task"]
    steps = tuple(
        _step(files, class_name, path, options["model_type"]) for class_name, path in modules
    )
    _check_steps(steps, options["model_type"], files)
    pooling = Pooling(
        max_tokens=count(sentence, "max_seq_length", origin),
        lowercase=flag(sentence, "do_lower_case", origin),
        output=OUTPUTS[task],
        query_length=count(sentence, "query_length", origin),
        document_length=count(sentence, "document_length", origin),
        query_expansion=_expansion(sentence, origin),
        **_fields_of_steps(steps),
        **options,
    )
    file_contents = {
        SENTENCE: _sentence_config(pooling),
        SETTINGS: _settings_config(pooling),
        MODULES: {},
    }
    return _with_extra(pooling, extra, file_contents)


def _read_static(
    files: SourceFiles,
    modules: list[tuple[str, str]],
    extra: dict[str, dict[str, Any]],
    options: dict[str, Any],
    settings: Mapping[str, Any],
) -> Pooling:
    """Return the settings of a table of vectors, whose module takes their mean."""
    origin = str(files.path(MODULES))
    if options["model_type"] != "SentenceTransformer":
        raise VerificationError(
            f"{origin}: {STATIC} in a {options['model_type']} is not implemented",
            "only in a SentenceTransformer",
        )
    steps = tuple(
        _step(files, class_name, path, options["model_type"]) for class_name, path in modules
    )
    for step in steps:
        if read_by(step) == TOKENS:
            raise VerificationError(
                f"{origin}: {step.class_name} reads {TOKENS}, which {STATIC} does not set",
                "leave the module out",
            )
    if "model_type" in settings:
        extra[SETTINGS]["model_type"] = settings["model_type"]
    steps = (PoolingModule(), *steps)
    _check_steps(steps, options["model_type"], files)
    pooling = Pooling(
        max_tokens=read_sections(files).get("truncation", {}).get("max_length"),
        **_fields_of_steps(steps),
        **options,
    )
    return _with_extra(pooling, extra, {SETTINGS: _settings_config(pooling)})


def _with_extra(
    pooling: Pooling,
    extra: Mapping[str, dict[str, Any]],
    file_contents: Mapping[str, dict[str, Any]],
) -> Pooling:
    """Return settings with the keys of files that are not in ``file_contents`` anyway."""
    remaining = {}
    for file, keys in extra.items():
        contents = file_contents[file]
        remaining_keys = {}
        for key, value in keys.items():
            if key not in contents or contents[key] != value:
                remaining_keys[key] = value
        if remaining_keys:
            remaining[file] = remaining_keys
    return msgspec.structs.replace(pooling, extra=remaining)


def _modality_config(output: str) -> dict[str, Any]:
    """Return the ``modality_config`` for an output of the model of a text."""
    return {"text": {"method": "forward", "method_output_name": output}}


def module_folders(files: SourceFiles) -> dict[str, str]:
    """Return folder in our layout -> folder in the files, for each module after the first."""
    if not files.has(MODULES):
        return {}
    (backbone, _), *modules = _modules(files)
    # The pooling of a static encoder is a module of its own in our layout.
    first_number = 2 if backbone == STATIC else 1
    return {
        f"{number}_{class_name}": path
        for number, (class_name, path) in enumerate(modules, first_number)
    }


def backbone_folder(files: SourceFiles) -> str:
    """Return the folder of configuration, weights and tokenizer, if a module has one.

    It is empty for most models, which have these files next to ``modules.json``.
    """
    if files.has("config.json") or not files.has(MODULES):
        return ""
    modules = _modules(files)
    if not modules:
        return ""
    folder = posixpath.normpath(modules[0][1])
    if folder == "." or not files.path(folder).is_dir():
        return ""
    return folder


def _fields_of_steps(steps: tuple[AnyModule, ...]) -> dict[str, Any]:
    """Return the fields of ``Pooling`` for modules; the usual ones have fields of their own."""
    if not is_usual(steps):
        return {"modules": steps}
    pooling, *normalization = steps
    assert isinstance(pooling, PoolingModule), "the usual modules begin with pooling"
    return {
        "mode": pooling.modes[0],
        "include_prompt": pooling.include_prompt,
        "normalize": bool(normalization),
    }


def _sentence(files: SourceFiles, folder: str) -> tuple[str, dict[str, Any]]:
    """Return the name and contents of the file about the backbone."""
    prefix = f"{folder}/" if folder else ""
    matches = files.matching(prefix + ANY_SENTENCE)
    if len(matches) > 1 and prefix + SENTENCE not in matches:
        raise VerificationError(f"{files.directory} holds {' and '.join(matches)}", "keep only one")
    name = matches[0] if len(matches) == 1 else prefix + SENTENCE
    return name, files.json_if_any(name)


def _step(files: SourceFiles, class_name: str, folder: str, model_type: EncoderType) -> AnyModule:
    """Return a module after the backbone."""
    if class_name not in MODULE_KEYS:
        raise VerificationError(
            f"{files.path(MODULES)}: {_described(class_name)} is not implemented",
            f"after the first module, only {', '.join(MODULE_KEYS)} are",
        )
    name = f"{folder}/config.json"
    config = files.json_if_any(name) if class_name == "Normalize" else files.json(name)
    vectors = TOKENS if model_type == "MultiVectorEncoder" else SENTENCE_VECTOR
    return read_module(class_name, config, str(files.path(name)), vectors)


def _described(class_name: str) -> str:
    """Return the name of a module, with what it does if that is known."""
    reason = REFUSED_MODULES.get(class_name)
    return f"{class_name:.100}" if reason is None else f"{class_name} ({reason})"


def _check_steps(steps: tuple[AnyModule, ...], model_type: EncoderType, files: SourceFiles) -> None:
    """Check that each module reads what those before it set, and that the result is there."""
    origin = str(files.path(MODULES))
    try:
        features = final_features(steps, UNKNOWN, module_folders(files))
    except VerificationError as error:
        raise VerificationError(f"{origin}: {error.what}", error.hint) from error
    if model_type != "MultiVectorEncoder":
        sentence_vector = features.get(SENTENCE_VECTOR)
        if sentence_vector is None or sentence_vector.per_token:
            kinds = ", ".join(step.class_name for step in steps) or "no module"
            raise VerificationError(
                f"{origin}: {kinds} after the first module: nothing makes a vector of a text",
                "a module such as Pooling does",
            )


def _expansion(config: Mapping[str, Any], origin: str) -> QueryExpansion | None:
    expansion = config.get("query_expansion")
    if expansion is None:
        return None
    try:
        return msgspec.convert(expansion, QueryExpansion)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{origin}: query_expansion: {error}") from error


def module_kinds(files: SourceFiles) -> tuple[str, ...]:
    """Return the kind of each module, in order."""
    return tuple(class_name for class_name, _ in _modules(files))


def _check(
    config: Mapping[str, Any], keys: FileKeys, origin: str, **accepted: tuple[Any, ...]
) -> dict[str, Any]:
    harmless_values = {}
    for key in ARGUMENTS:
        value = config.get(key)
        if isinstance(value, dict) and value.keys() <= HARMLESS_ARGUMENTS:
            harmless_values[key] = (None, value)
    return check_keys(config, keys, origin, {**ACCEPTED_VALUES, **harmless_values, **accepted})


def hub_pooling_files(
    pooling: Pooling, hidden_size: int, backbone: str = "Transformer"
) -> dict[str, bytes]:
    """Return the files with which sentence-transformers computes the same embeddings.

    ``backbone`` is the class of the first module, see ``Family.sentence_module``.
    """
    steps = pooling.steps
    folders = ["", *(module_folder(number, step) for number, step in enumerate(steps, 1))]
    features: Features = {TOKENS: Feature(hidden_size, per_token=True)}
    if backbone == STATIC:  # Pooling is a part of this module.
        if steps[0] != PoolingModule() or any(read_by(step) == TOKENS for step in steps[1:]):
            raise UsageError(
                f"{STATIC} of sentence-transformers is the mean of the tokens, and the modules "
                f"are {pooling.describe()}",
                "use the model with zoo run or zoo export",
            )
        features |= steps[0].apply_to(features)
        steps = steps[1:]
        folders = ["", *folders[2:]]
    kinds = [backbone, *(step.class_name for step in steps)]
    modules = []
    for index, (class_name, folder) in enumerate(zip(kinds, folders, strict=True)):
        module_class = f"{PACKAGES[class_name]}.{class_name}"
        modules.append({"idx": index, "name": str(index), "path": folder, "type": module_class})
    modules[0] |= pooling.extra.get(MODULES, {})
    files = {MODULES: encode_hub_json(modules)}
    for folder, step in zip(folders[1:], steps, strict=True):
        config = module_config(step, features.get(read_by(step)))
        if config or not isinstance(step, NormalizeModule):
            files[f"{folder}/config.json"] = encode_hub_json(config)
        features |= step.apply_to(features)
    if backbone != STATIC:
        config = {**_sentence_config(pooling), **pooling.extra.get(SENTENCE, {})}
        files[SENTENCE] = encode_hub_json(config)
    settings = {**_settings_config(pooling), **pooling.extra.get(SETTINGS, {})}
    files[SETTINGS] = encode_hub_json(settings)
    return files


def _sentence_config(pooling: Pooling) -> dict[str, Any]:
    """Return the keys of the file about the backbone."""
    limits = {"query_length": pooling.query_length, "document_length": pooling.document_length}
    config: dict[str, Any] = {
        "max_seq_length": pooling.max_tokens,
        "do_lower_case": pooling.lowercase,
    }
    config |= {key: value for key, value in limits.items() if value is not None}
    if pooling.query_expansion is not None:
        config["query_expansion"] = msgspec.structs.asdict(pooling.query_expansion)
    if pooling.output == "logits":
        config["transformer_task"] = FILL_MASK
        config["modality_config"] = _modality_config(pooling.output)
        config["module_output_name"] = TOKENS
    return config


def _settings_config(pooling: Pooling) -> dict[str, Any]:
    config: dict[str, Any] = {
        "prompts": pooling.prompts,
        "default_prompt_name": pooling.default_prompt_name,
        "similarity_fn_name": pooling.similarity_fn_name,
    }
    limits = {"truncate_dim": pooling.truncate_dim, "max_active_dims": pooling.max_active_dims}
    config |= {key: value for key, value in limits.items() if value is not None}
    # Older versions have only the class ``SentenceTransformer``, and write no type.
    if pooling.model_type != "SentenceTransformer":
        config["model_type"] = pooling.model_type
    return config


def _modules(files: SourceFiles) -> list[tuple[str, str]]:
    """Return kind and folder of each module, in order; a kind of another package has its name."""
    content = files.parse(MODULES)
    origin = str(files.path(MODULES))
    if not isinstance(content, list) or not all(isinstance(module, dict) for module in content):
        raise VerificationError(f"{origin} is not a list of modules")
    check_size(origin, "number of modules", len(content), MAX_MODULES)
    modules = []
    for module in content:
        class_name = module.get("type")
        folder = module.get("path")
        if not isinstance(class_name, str) or not isinstance(folder, str):
            raise VerificationError(f"{origin}: {module!r:.100} has no type and path")
        arguments = ACCEPTED_VALUES["kwargs"]
        if class_name == TASK_TRANSFORMER:
            arguments = (*arguments, ["task"])
        _check(module, MODULES_KEYS, origin, kwargs=arguments)
        package, _, name = class_name.rpartition(".")
        if package.split(".")[0] == PACKAGE:
            class_name = name
        modules.append((class_name, folder))
    return modules


def read_prompts(config: Mapping[str, Any], origin: str) -> tuple[dict[str, str], str | None]:
    """Return name -> prompt, and the name of the default prompt."""
    prompts = config.get("prompts") or {}
    has_texts = isinstance(prompts, dict) and all(
        text is None or isinstance(text, str) for text in prompts.values()
    )
    if not has_texts:
        raise VerificationError(f"{origin}: prompts = {shown(prompts)} are not names and texts")
    default = config.get("default_prompt_name")
    if default is not None and default not in (*prompts, *IMPLICIT_PROMPTS):
        hint = f"they are {', '.join(prompts)}" if prompts else "there are none"
        raise VerificationError(
            f"{origin}: default_prompt_name = {default!r:.100} is not one of the prompts", hint
        )
    return {name: text or "" for name, text in prompts.items()}, default


def _settings(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return prompts, similarity and size of embeddings."""
    prompts, default = read_prompts(config, origin)
    model_type: Any = config.get("model_type") or "SentenceTransformer"
    if model_type not in get_args(EncoderType):
        raise VerificationError(
            f"{origin}: model_type = {model_type!r:.100} is not implemented",
            f"only {', '.join(get_args(EncoderType))} and {CROSS_ENCODER} are",
        )
    functions = SIMILARITIES[model_type]
    function = config.get("similarity_fn_name") or functions[0]
    if function not in functions:
        raise VerificationError(
            f"{origin}: similarity_fn_name = {function!r:.100} is not implemented",
            f"only {', '.join(functions)} are, for {model_type}",
        )
    return {
        "prompts": prompts,
        "default_prompt_name": default,
        "similarity_fn_name": function,
        "truncate_dim": count(config, "truncate_dim", origin),
        "max_active_dims": count(config, "max_active_dims", origin),
        "model_type": model_type,
    }
