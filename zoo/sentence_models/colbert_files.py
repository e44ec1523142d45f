"""Late interaction as PyLate and Stanford's ColBERT store it, read as sentence-transformers."""

import json
import string
from collections.abc import Mapping
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import VerificationError
from zoo.io.file_keys import FileKeys, carried, honoured, refused
from zoo.io.json import encode_hub_json
from zoo.overrides import override
from zoo.sentence_models import sentence_transformers_files as native
from zoo.sentence_models.module_files import PACKAGES, check_keys
from zoo.sentence_models.modules import (
    TOKENS,
    DenseModule,
    MaskModule,
    NormalizeModule,
    module_folder,
)
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import (
    MODULES,
    SENTENCE,
    SETTINGS,
    SETTINGS_KEYS,
)
from zoo.tokenizers.source_files import SourceFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PYLATE = "ColBERT"  # model_type in SETTINGS
DENSE = "pylate.models.Dense.Dense"
STANFORD = "HF_ColBERT"
METADATA = "artifact.metadata"
PROJECTION = "linear.weight"  # Stanford's checkpoints have it next to the weights of the model.
# PyLate's defaults.
QUERY_LENGTH = 32
DOCUMENT_LENGTH = 180
PREFIXES = {"query_prefix": "query", "document_prefix": "document"}  # key -> name of a prompt
PYLATE_KEYS: FileKeys = {
    "query_prefix": honoured("a token before queries, which becomes a prompt"),
    "document_prefix": honoured("a token before documents, which becomes a prompt"),
    "query_length": honoured("the number of tokens that queries are cut and expanded to"),
    "document_length": honoured("the number of tokens that documents are cut to"),
    "skiplist_words": honoured("tokens of documents that are not compared"),
    "do_query_expansion": honoured("whether mask tokens are added to queries"),
    "attend_to_expansion_tokens": honoured("whether queries attend to them"),
    "attend_to_mask_tokens": honoured("another name of `attend_to_expansion_tokens`"),
    "query_expansion": refused("the settings of `MultiVectorEncoder`"),
}
_TRAINING_KEYS = (
    "ncells",
    "centroid_score_threshold",
    "ndocs",
    "load_index_with_mmap",
    "index_path",
    "index_bsize",
    "nbits",
    "kmeans_niters",
    "resume",
    "bsize",
    "accumsteps",
    "lr",
    "maxsteps",
    "save_every",
    "warmup",
    "warmup_bert",
    "relu",
    "nway",
    "use_ib_negatives",
    "reranker",
    "distillation_alpha",
    "ignore_scores",
    "model_name",
    "checkpoint",
    "triples",
    "collection",
    "queries",
    "index_name",
    "overwrite",
    "root",
    "experiment",
    "index_root",
    "name",
    "rank",
    "nranks",
    "amp",
    "gpus",
    "meta",
    "avoid_fork_if_possible",
    "pool_factor",
    "clustering_mode",
    "protected_tokens",
    "interaction_type",
    "query_token",
    "doc_token",
    "dim",
)
METADATA_KEYS: FileKeys = {
    "query_token_id": honoured("the token before queries, which becomes a prompt"),
    "doc_token_id": honoured("the token before documents, which becomes a prompt"),
    "query_maxlen": honoured("the number of tokens that queries are cut and expanded to"),
    "doc_maxlen": honoured("the number of tokens that documents are cut to"),
    "attend_to_mask_tokens": honoured("whether queries attend to the tokens that are added"),
    "mask_punctuation": honoured("whether punctuation of documents is not compared"),
    "similarity": refused("values except `cosine`"),
    "interaction": refused("values except `colbert`"),
    **dict.fromkeys(_TRAINING_KEYS, carried("a setting of training or of an index")),
}


class TranslatedFiles(SourceFiles):
    """Files of a directory, some of which have other contents."""

    def __init__(self, files: SourceFiles, contents: Mapping[str, Any]) -> None:
        super().__init__(files.directory, files.only, files.folder)
        self.names_read = files.names_read
        self.contents = contents

    @override
    def has(self, name: str) -> bool:
        return name in self.contents or super().has(name)

    @override
    def parse(self, name: str) -> Any:
        return self.contents[name] if name in self.contents else super().parse(name)


def read_pooling(files: SourceFiles, projection: tuple[int, ...] | None = None) -> Pooling | None:
    """Read the settings of a sentence encoder; see ``native_files``.

    The settings of PyLate and of Stanford's ColBERT are translated into the modules and keys of
    ``MultiVectorEncoder``, which ``sentence_transformers_files`` reads. Both put a token in front
    of a text, in place of a prompt; the tokenizer gets it as a special token, so that a prompt has
    the same ids.
    """
    translated_files = native_files(files, projection)
    pooling = native.read_pooling(translated_files)
    if pooling is None:
        return None
    extra = dict(pooling.extra)
    if files.has(METADATA):
        # A conversion back to the Hub's layout writes it again.
        extra[METADATA] = files.json(METADATA)
    if translated_files is not files and projection is None:
        # A conversion back to the Hub's layout writes PyLate's files again.
        settings = files.json_if_any(SETTINGS)
        marks = {key: settings[key] for key in PREFIXES if isinstance(settings.get(key), str)}
        extra[SETTINGS] = {**extra.get(SETTINGS, {}), "model_type": PYLATE, **marks}
    return msgspec.structs.replace(pooling, extra=extra)


def module_folders(files: SourceFiles) -> dict[str, str]:
    """Return folder in our layout -> folder in the files, for each module after the first."""
    return native.module_folders(native_files(files))


def native_files(files: SourceFiles, projection: tuple[int, ...] | None = None) -> SourceFiles:
    """Return files as sentence-transformers has them."""
    if projection is not None:
        return _translate_stanford(files, projection)
    if files.has(MODULES):
        settings = files.json_if_any(SETTINGS)
        kinds = native.module_kinds(files)
        if settings.get("model_type") == PYLATE or DENSE in kinds:
            return _translate_pylate(files, settings)
    return files


def is_stanford(architectures: tuple[str, ...]) -> bool:
    """Return whether the classes of a configuration belong to Stanford's checkpoints."""
    return STANFORD in architectures


def _translate_pylate(files: SourceFiles, settings: Mapping[str, Any]) -> SourceFiles:
    """Translate the files of PyLate."""
    origin = str(files.path(SETTINGS))
    accepted_values = {"model_type": (settings.get("model_type"),)}
    check_keys(settings, {**SETTINGS_KEYS, **PYLATE_KEYS}, origin, accepted_values)
    pylate_modules = files.parse(MODULES)
    if not pylate_modules:
        raise VerificationError(f"{files.path(MODULES)} lists no modules")
    backbone, *dense_modules = pylate_modules
    for module in dense_modules:
        if module["type"].rpartition(".")[2] != "Dense":
            raise VerificationError(
                f"{files.path(MODULES)}: {module['type']:.100} is not implemented in a model of "
                "PyLate",
                "after the first module, only Dense is",
            )
    values = {key: value for key, value in settings.items() if value is not None}
    marks = {name: _text(values, key, origin) for key, name in PREFIXES.items()}
    prompts, _ = native.read_prompts({"prompts": values.get("prompts")}, origin)
    marked_prompts = {}
    for name in {**marks, **prompts}:
        mark = marks.get(name, "")
        marked_prompts[name] = mark + prompts.get(name, "").removeprefix(mark)

    sentence_name = next(iter(files.matching(native.ANY_SENTENCE)), SENTENCE)
    sentence = dict(files.json_if_any(sentence_name))
    sentence["document_length"] = values.get("document_length", DOCUMENT_LENGTH)
    length = values.get("query_length", QUERY_LENGTH)
    if values.get("do_query_expansion") is False:
        sentence["query_length"] = length
    else:
        attend = values.get("attend_to_mask_tokens", False)
        attend = values.get("attend_to_expansion_tokens", attend)
        sentence["query_expansion"] = _fixed_expansion(length, attend)

    modules = [backbone]
    for module in dense_modules:
        modules.append({**module, "type": f"{PACKAGES['Dense']}.Dense"})
    native_settings = {}
    for key, value in settings.items():
        if key not in PYLATE_KEYS and key != "similarity_fn_name":
            native_settings[key] = value
    native_settings["prompts"] = marked_prompts
    return _add_implicit_modules(
        files,
        modules=modules,
        settings=native_settings,
        sentence={sentence_name: sentence},
        skiplist=values.get("skiplist_words", list(string.punctuation)),
    )


def _translate_stanford(files: SourceFiles, projection: tuple[int, ...]) -> SourceFiles:
    """Translate the files of Stanford's ColBERT."""
    metadata = files.json_if_any(METADATA)
    origin = str(files.path(METADATA))
    accepted_values = {"similarity": ("cosine", None), "interaction": ("colbert", None)}
    check_keys(metadata, METADATA_KEYS, origin, accepted_values)
    if len(projection) != 2:
        raise VerificationError(f"{files.directory}: {PROJECTION} is not a matrix")
    width, hidden = projection
    values = {key: value for key, value in metadata.items() if value is not None}
    marks = {
        "query": _text(values, "query_token_id", origin, "[unused0]") + " ",
        "document": _text(values, "doc_token_id", origin, "[unused1]") + " ",
    }
    length = values.get("query_maxlen", QUERY_LENGTH)
    attend = values.get("attend_to_mask_tokens", False)
    sentence = {"query_expansion": _fixed_expansion(length, attend)}
    if "doc_maxlen" in values:
        sentence["document_length"] = values["doc_maxlen"]
    skiplist = []
    if values.get("mask_punctuation", True):
        skiplist = list(string.punctuation)
    dense = {
        "in_features": hidden,
        "out_features": width,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return _add_implicit_modules(
        files,
        modules=[
            {"path": "", "type": f"{PACKAGES['Transformer']}.Transformer"},
            {"path": "1_Dense", "type": f"{PACKAGES['Dense']}.Dense"},
        ],
        settings={"prompts": marks},
        sentence={SENTENCE: sentence},
        skiplist=skiplist,
        module_configs={"1_Dense/config.json": dense},
    )


def _add_implicit_modules(
    files: SourceFiles,
    *,
    modules: list[dict[str, Any]],
    settings: dict[str, Any],
    sentence: dict[str, dict[str, Any]],
    skiplist: Any,
    module_configs: Mapping[str, Any] | None = None,
) -> SourceFiles:
    """Add what both apply without a module: the mask of documents, and unit length."""
    mask_folder = f"{len(modules)}_MultiVectorMask"
    normalize_folder = f"{len(modules) + 1}_Normalize"
    implicit_modules = [
        {"path": mask_folder, "type": f"{PACKAGES['MultiVectorMask']}.MultiVectorMask"},
        {"path": normalize_folder, "type": f"{PACKAGES['Normalize']}.Normalize"},
    ]
    token_names = {"module_input_name": TOKENS, "module_output_name": TOKENS}
    contents: dict[str, Any] = {
        MODULES: [*modules, *implicit_modules],
        SETTINGS: {**settings, "model_type": "MultiVectorEncoder"},
        **sentence,
        f"{mask_folder}/config.json": {"skiplist_words": skiplist},
        f"{normalize_folder}/config.json": token_names,
    }
    if module_configs is not None:
        contents |= module_configs
    return TranslatedFiles(files, contents)


def _fixed_expansion(length: Any, attend: Any) -> dict[str, Any]:
    return {"strategy": "fixed", "length": length, "attend": attend}


def _text(settings: Mapping[str, Any], key: str, origin: str, default: str = "") -> str:
    value = settings.get(key, default)
    if not isinstance(value, str):
        raise VerificationError(f"{origin}: {key} = {shown(value)} is not a text")
    return value


def register_marks(tokenizer: "Tokenizer", files: SourceFiles, *, stanford: bool) -> None:
    """Let a tokenizer keep the tokens in front of texts whole, where it has them."""
    from tokenizers import AddedToken

    settings = files.json_if_any(SETTINGS)
    if stanford:
        metadata = files.json_if_any(METADATA)
        marks = [
            metadata.get("query_token_id") or "[unused0]",
            metadata.get("doc_token_id") or "[unused1]",
        ]
    elif files.has(MODULES) and native_files(files) is not files:
        marks = [settings.get(key) for key in PREFIXES]
    else:
        return
    vocabulary = tokenizer.get_vocab()
    for mark in marks:
        if not isinstance(mark, str) or not mark.split():
            continue
        token = mark if mark in vocabulary else mark.split()[0]
        if token not in vocabulary:
            continue
        if tokenizer.encode(token, add_special_tokens=False).tokens != [token]:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])


def hub_pooling_files(
    pooling: Pooling, hidden_size: int, backbone: str = "Transformer"
) -> dict[str, bytes]:
    """Return the files with which sentence-transformers computes the same embeddings.

    A model that was read in PyLate's layout is written in it, if the layout can describe it.
    """
    if not is_of_pylate(pooling):
        files = native.hub_pooling_files(pooling, hidden_size, backbone)
        metadata = pooling.extra.get(METADATA)
        if metadata:
            files[METADATA] = encode_hub_json(metadata)
        return files
    pylate_settings = pooling.extra.get(SETTINGS, {})
    other_settings = {}
    for key, value in pylate_settings.items():
        if key != "model_type" and key not in PREFIXES:
            other_settings[key] = value
    extra = {**pooling.extra, SETTINGS: other_settings}
    native_pooling = msgspec.structs.replace(pooling, extra=extra)
    files = native.hub_pooling_files(native_pooling, hidden_size, backbone)
    if not _fits_pylate(pooling):
        return files
    return _pylate_files(pooling, pylate_settings, other_settings, files)


def _pylate_files(
    pooling: Pooling,
    pylate_settings: Mapping[str, Any],
    other_settings: Mapping[str, Any],
    files: Mapping[str, bytes],
) -> dict[str, bytes]:
    """Return the files of a model in PyLate's layout, given those of sentence-transformers."""
    *dense_modules, mask, _ = pooling.steps
    assert isinstance(mask, MaskModule), "checked"
    marks = {}
    for key, name in PREFIXES.items():
        if key in pylate_settings:
            marks[name] = pylate_settings[key]
    prompts = {}
    for name, text in pooling.prompts.items():
        prompts[name] = text.removeprefix(marks.get(name, ""))
    expansion = pooling.query_expansion
    settings = {
        "model_type": PYLATE,
        "prompts": prompts,
        "default_prompt_name": pooling.default_prompt_name,
        "similarity_fn_name": "MaxSim",
        **{key: marks.get(name, "") for key, name in PREFIXES.items()},
        "query_length": pooling.query_length if expansion is None else expansion.length,
        "document_length": pooling.document_length,
        "attend_to_expansion_tokens": expansion is not None and expansion.attend,
        "skiplist_words": list(mask.skiplist_words),
        "do_query_expansion": expansion is not None,
    }
    backbone_type = f"{PACKAGES['Transformer']}.Transformer"
    modules = [{"idx": 0, "name": "0", "path": "", "type": backbone_type}]
    configs = {}
    for number, module in enumerate(dense_modules, 1):
        folder = module_folder(number, module)
        modules.append({"idx": number, "name": str(number), "path": folder, "type": DENSE})
        name = f"{folder}/config.json"
        config = json.loads(files[name])
        # PyLate's Dense does not have these keys.
        config.pop("module_input_name", None)
        config.pop("module_output_name", None)
        configs[name] = encode_hub_json(config)
    sentence = {"max_seq_length": pooling.max_tokens, "do_lower_case": pooling.lowercase}
    return {
        MODULES: encode_hub_json(modules),
        SENTENCE: encode_hub_json({**sentence, **pooling.extra.get(SENTENCE, {})}),
        SETTINGS: encode_hub_json({**settings, **other_settings}),
        **configs,
    }


def is_of_pylate(pooling: Pooling) -> bool:
    """Return whether a model was read in PyLate's layout."""
    return bool(pooling.extra.get(SETTINGS, {}).get("model_type") == PYLATE)


def _fits_pylate(pooling: Pooling) -> bool:
    """Return whether PyLate's files describe a model: Dense, a mask of documents, unit length."""
    if len(pooling.steps) < 3:
        return False
    *dense_modules, mask, normalization = pooling.steps
    for module in dense_modules:
        if not isinstance(module, DenseModule):
            return False
        if (module.module_input_name, module.module_output_name) != (TOKENS, TOKENS):
            return False
    if not isinstance(mask, MaskModule):
        return False
    if mask.skiplist_tasks != ("document",) or mask.keep_only_token_ids is not None:
        return False
    if normalization != NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS):
        return False
    expansion = pooling.query_expansion
    if expansion is not None and (expansion.strategy != "fixed" or expansion.token is not None):
        return False
    return pooling.similarity_fn_name == "maxsim"
