"""Configuration of the modules of sentence-transformers, read and written."""

# A table for each kind of module says what becomes of the keys of its ``config.json``.

from collections.abc import Callable, Mapping
from reprlib import repr as shown
from typing import Any

import msgspec

from zoo.errors import UsageError, VerificationError
from zoo.io.file_keys import (
    FileKeys,
    Precedence,
    Treatment,
    carried,
    honoured,
    refused,
    written_anew,
)
from zoo.sentence_models.modules import (
    SENTENCE_VECTOR,
    TOKENS,
    ActivationName,
    AnyModule,
    DenseModule,
    DropoutModule,
    Feature,
    LayerNormModule,
    LexicalPoolingModule,
    MaskModule,
    NormalizeModule,
    PoolingMode,
    PoolingModule,
    SpladePoolingModule,
)

# Flag in 1_Pooling/config.json -> mode, which newer files name directly. The embeddings of several
# flags are joined in this order.
MODES: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_OF_TORCH = "torch.nn.modules.activation."
ACTIVATIONS: Mapping[str, ActivationName] = {
    "torch.nn.modules.linear.Identity": "identity",
    f"{_OF_TORCH}Tanh": "tanh",
    f"{_OF_TORCH}ReLU": "relu",
    f"{_OF_TORCH}GELU": "gelu",
    f"{_OF_TORCH}Sigmoid": "sigmoid",
    f"{_OF_TORCH}SiLU": "silu",
    f"{_OF_TORCH}ELU": "elu",
    f"{_OF_TORCH}LeakyReLU": "leaky_relu",
    f"{_OF_TORCH}Softplus": "softplus",
}
_SHORT = {f"torch.nn.{path.rpartition('.')[2]}": path for path in ACTIVATIONS}

_INPUT = honoured("the feature that the module reads")
_OUTPUT = honoured("the feature that it sets")
POOLING_KEYS: FileKeys = {
    "embedding_dimension": written_anew("the width of what is pooled"),
    "word_embedding_dimension": written_anew("another name of `embedding_dimension`"),
    "pooling_mode": honoured("one mode, or several whose embeddings are joined"),
    **{key: honoured(f"`pooling_mode`: `{mode}`") for key, mode in MODES.items()},
    "include_prompt": honoured("whether the tokens of a prompt are pooled"),
}
MODULE_PRECEDENCE = (
    Precedence(
        "pooling",
        ("`pooling_mode`", *(f"`{key}`" for key in MODES)),
        "only `pooling_mode`, if it is there. The embeddings of several flags are joined in the "
        "order of this row, and those of a list in its order",
    ),
)
NORMALIZE_KEYS: FileKeys = {"module_input_name": _INPUT, "module_output_name": _OUTPUT}
DENSE_KEYS: FileKeys = {
    "in_features": honoured("the width of the input, which is checked"),
    "out_features": honoured("the width of the output"),
    "bias": honoured("whether the linear map has a bias"),
    "activation_function": honoured("a function of `torch.nn` without arguments"),
    "module_input_name": _INPUT,
    "module_output_name": _OUTPUT,
    "use_residual": honoured("whether the input is added to the output"),
    "init_weight": refused("weights in the configuration"),
    "init_bias": refused("weights in the configuration"),
}
LAYER_NORM_KEYS: FileKeys = {"dimension": honoured("the width, which is checked")}
DROPOUT_KEYS: FileKeys = {"dropout": honoured("the probability, in training")}
SPLADE_KEYS: FileKeys = {
    "pooling_strategy": honoured("`max` or `sum` over the tokens"),
    "activation_function": honoured("`relu`, or `log1p_relu` for two logarithms"),
    "embedding_dimension": written_anew("the size of the vocabulary"),
    "word_embedding_dimension": written_anew("another name of `embedding_dimension`"),
    "chunk_size": carried("a setting of memory, results are equal"),
}
MASK_KEYS: FileKeys = {
    "skiplist_words": honoured("tokens that are not compared"),
    "skiplist_tasks": honoured("whether they are left out of `query` and `document`"),
    "keep_only_token_ids": honoured("the only tokens of documents that are compared"),
}
LOGIT_SCORE = "LogitScore"  # Module of cross-encoders that are language models.
LOGIT_SCORE_KEYS: FileKeys = {
    "true_token_id": honoured("the token whose logit scores a pair"),
    "false_token_id": honoured("the token whose logit is subtracted; none if it is `null`"),
    "module_input_name": refused("logits except `causal_logits`"),
}
MODULE_KEYS: Mapping[str, FileKeys] = {
    "Pooling": POOLING_KEYS,
    "Normalize": NORMALIZE_KEYS,
    "Dense": DENSE_KEYS,
    "LayerNorm": LAYER_NORM_KEYS,
    "Dropout": DROPOUT_KEYS,
    "SpladePooling": SPLADE_KEYS,
    "MultiVectorMask": MASK_KEYS,
}
# kind -> what it does that is not implemented; such a model is refused by name
REFUSED_MODULES: Mapping[str, str] = {
    "Router": "selects modules by the task or the kind of an input",
    "Asym": "an older name of Router: selects modules by the task of an input",
    "WordEmbeddings": "vectors of words, of a tokenizer that splits at spaces",
    "BoW": "counts the words of a vocabulary of its own",
    "WordWeights": "weights the words of a vocabulary of its own",
    "WeightedLayerPooling": "adds up the hidden states of all layers",
    "CNN": "convolutions over tokens",
    "LSTM": "a recurrent network over tokens",
    "CLIPModel": "reads images",
    "SparseAutoEncoder": "keeps the largest of many features of an embedding",
    "SparseStaticEmbedding": "weights the words of a text without reading it",
    "HierarchicalTokenPooling": "clusters the vectors of tokens",
    "LambdaTokenPooling": "runs a function of Python",
    "LogitScore": "scores a pair by the logits of two words, and is read in cross-encoders only",
}
# kind -> package of its class; older releases than 6 know most of them
_MODELS = "sentence_transformers.models"
PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm"), _MODELS),
    **dict.fromkeys(("Dropout", "StaticEmbedding"), _MODELS),
    "SpladePooling": "sentence_transformers.sparse_encoder.models",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask",
    "LogitScore": "sentence_transformers.cross_encoder.modules.logit_score",
}


def check_keys(
    config: Mapping[str, Any],
    keys: FileKeys,
    origin: str,
    accepted: Mapping[str, tuple[Any, ...]],
) -> dict[str, Any]:
    """Check that the keys of a file are known, and that none asks for what is not implemented."""
    # Returns the keys to carry along, and those that would be refused with another value.
    for key, value in config.items():
        if key not in keys:
            continue
        allowed = accepted.get(key, (None,))
        if keys[key].treatment is Treatment.REFUSED and value not in allowed:
            raise VerificationError(
                f"{origin}: {key} = {shown(value)} is not implemented",
                f"only {' or '.join(map(repr, allowed))} is",
            )
    for key in config.keys() - keys.keys():
        raise VerificationError(
            f"{origin}: the key {key!r:.100} is unknown", "remove it if results do not depend on it"
        )
    # A value of a refused key is one of the accepted values here.
    extra_treatments = (Treatment.CARRIED, Treatment.REFUSED)
    return {key: value for key, value in config.items() if keys[key].treatment in extra_treatments}


def read_module(class_name: str, config: Mapping[str, Any], origin: str, vectors: str) -> AnyModule:
    """Return a module from its ``config.json``."""
    check_keys(config, MODULE_KEYS[class_name], origin, {})
    values = {key: value for key, value in config.items() if value is not None}
    fields = _READERS[class_name](values, origin, vectors)
    try:
        module: AnyModule = msgspec.convert({"type": class_name, **fields}, AnyModule)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{origin}: {error}") from error
    return module


def _pooling(config: Mapping[str, Any], origin: str, vectors: str) -> dict[str, Any]:
    value: Any = config.get("pooling_mode")
    if value is None:
        value = [mode for key, mode in MODES.items() if flag(config, key, origin)] or "mean"
    modes = [value] if isinstance(value, str) else value
    is_implemented = isinstance(modes, list) and bool(modes)
    if is_implemented:
        is_implemented = all(isinstance(mode, str) and mode in MODES.values() for mode in modes)
    if not is_implemented:
        raise VerificationError(f"{origin}: pooling_mode = {value!r:.100} is not implemented")
    return {"modes": modes, "include_prompt": flag(config, "include_prompt", origin, True)}


def _dense(config: Mapping[str, Any], origin: str, vectors: str) -> dict[str, Any]:
    path = config.get("activation_function", f"{_OF_TORCH}Tanh")
    function = activation_named(path, f"{origin}: activation_function")
    for key in ("in_features", "out_features"):
        if count(config, key, origin) is None:
            raise VerificationError(f"{origin} has no {key}")
    return {**config, **_names(config, vectors), "activation_function": function}


def activation_named(path: Any, location: str) -> ActivationName:
    """Return the function that a file names by its path in torch."""
    function = None
    if isinstance(path, str):
        function = ACTIVATIONS.get(_SHORT.get(path, path))
    if function is None:
        names = ", ".join(name.rpartition(".")[2] for name in ACTIVATIONS)
        raise VerificationError(
            f"{location} = {shown(path)} is not implemented", f"of torch.nn, {names} are"
        )
    return function


def activation_path(function: ActivationName) -> str:
    """Return the path of a function in torch, as sentence-transformers writes it."""
    return next(path for path, name in ACTIVATIONS.items() if name == function)


def _names(config: Mapping[str, Any], default: str) -> dict[str, Any]:
    """Return the names of the features that a module reads and sets."""
    input_name = config.get("module_input_name", default)
    output_name = config.get("module_output_name", input_name)
    return {"module_input_name": input_name, "module_output_name": output_name}


def _dimension(config: Mapping[str, Any], origin: str, vectors: str) -> dict[str, Any]:
    if count(config, "dimension", origin) is None:
        raise VerificationError(f"{origin} has no dimension")
    return dict(config)


def _splade(config: Mapping[str, Any], origin: str, vectors: str) -> dict[str, Any]:
    names = ("pooling_strategy", "activation_function")
    return {name: config[name] for name in names if name in config}


def _mask(config: Mapping[str, Any], origin: str, vectors: str) -> dict[str, Any]:
    tasks = config.get("skiplist_tasks", ["document"])
    if isinstance(tasks, str):
        tasks = [tasks]
    return {**config, "skiplist_tasks": tasks}


_READERS: Mapping[str, Callable[[Mapping[str, Any], str, str], dict[str, Any]]] = {
    "Pooling": _pooling,
    "Normalize": lambda config, origin, vectors: _names(config, SENTENCE_VECTOR),
    "Dense": _dense,
    "LayerNorm": _dimension,
    "Dropout": lambda config, origin, vectors: dict(config),
    "SpladePooling": _splade,
    "MultiVectorMask": _mask,
}


def _pooling_config(module: PoolingModule, width: int) -> dict[str, Any]:
    """Return the ``config.json`` of pooling; one mode is written as older versions write it."""
    config: dict[str, Any]
    if len(module.modes) == 1:
        config = {"word_embedding_dimension": width}
        for key, mode in MODES.items():
            config[key] = mode == module.modes[0]
    else:
        config = {"embedding_dimension": width, "pooling_mode": list(module.modes)}
    if not module.include_prompt:
        config["include_prompt"] = False
    return config


def module_config(module: AnyModule, feature: Feature | None) -> dict[str, Any]:
    """Return the ``config.json`` of a module, given the feature that it reads."""
    width = 0 if feature is None else feature.width
    match module:
        case PoolingModule():
            return _pooling_config(module, width)
        case DenseModule():
            config = {name: getattr(module, name) for name in DenseModule.__struct_fields__}
            if not module.use_residual:
                del config["use_residual"]
            return {**config, "activation_function": activation_path(module.activation_function)}
        case NormalizeModule():
            names = (module.module_input_name, module.module_output_name)
            if names == (SENTENCE_VECTOR, SENTENCE_VECTOR):
                return {}
            return dict(zip(NORMALIZE_KEYS, names, strict=True))
        case LayerNormModule():
            return {"dimension": module.dimension}
        case DropoutModule():
            return {"dropout": module.dropout}
        case SpladePoolingModule():
            return {
                "pooling_strategy": module.pooling_strategy,
                "activation_function": module.activation_function,
                "embedding_dimension": width,
            }
        case LexicalPoolingModule():
            raise _unwritable(module.class_name)
        case MaskModule():
            if module.skips_first:
                raise _unwritable("leaving out the first token")
            token_ids = module.keep_only_token_ids
            return {
                "skiplist_words": list(module.skiplist_words),
                "skiplist_tasks": list(module.skiplist_tasks),
                "keep_only_token_ids": None if token_ids is None else list(token_ids),
            }


def _unwritable(part: str) -> UsageError:
    return UsageError(
        f"sentence-transformers has no module for {part}", "use the model with zoo run"
    )


def read_by(module: AnyModule) -> str:
    """Return the name of the feature that a module reads."""
    match module:
        case DenseModule() | NormalizeModule():
            return module.module_input_name
        case PoolingModule() | SpladePoolingModule() | MaskModule() | LexicalPoolingModule():
            return TOKENS
    return SENTENCE_VECTOR


def count(config: Mapping[str, Any], key: str, origin: str) -> int | None:
    """Return the value of a key that is a positive number, if any."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise VerificationError(f"{origin}: {key} = {value!r:.100} is not a positive number")
    return value


def flag(config: Mapping[str, Any], key: str, origin: str, default: bool = False) -> bool:
    """Return the value of a key that is true or false."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise VerificationError(f"{origin}: {key} = {value!r:.100} is neither true nor false")
    return value
