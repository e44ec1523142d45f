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
PROJECTION = "linear.weight"  # of Stanford's checkpoints, next to the weights of the model
# defaults of PyLate
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
_TRAINING = (
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
    **dict.fromkeys(_TRAINING, carried("a setting of training or of an index")),
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
    """Read the settings of a sentence encoder; see ``native_files``."""
    # Their settings are translated into the modules and keys of ``MultiVectorEncoder``, which
    # ``sentence_files`` reads. Both put a token in front of a text, in place of a prompt; the
    # tokenizer gets it as a special token, so that a prompt has the same ids.
    translated = native_files(files, projection)
    pooling = native.read_pooling(translated)
    if pooling is None:
        return None
    extra = dict(pooling.extra)
    if files.has(METADATA):
        extra[METADATA] = files.json(METADATA)  # kept for the way back
    if translated is not files and projection is None:  # the layout of PyLate is written again
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
        return _of_stanford(files, projection)
    if files.has(MODULES):
        settings = files.json_if_any(SETTINGS)
        kinds = native.module_kinds(files)
        if settings.get("model_type") == PYLATE or DENSE in kinds:
            return _of_pylate(files, settings)
    return files


def is_stanford(architectures: tuple[str, ...]) -> bool:
    """Return whether the classes of a configuration belong to Stanford's checkpoints."""
    return STANFORD in architectures


def _of_pylate(files: SourceFiles, settings: Mapping[str, Any]) -> SourceFiles:
    origin = str(files.path(SETTINGS))
    accepted = {"model_type": (settings.get("model_type"),)}
    check_keys(settings, {**SETTINGS_KEYS, **PYLATE_KEYS}, origin, accepted)
    if not (stored := files.parse(MODULES)):
        raise VerificationError(f"{files.path(MODULES)} lists no modules")
    first, *listed = stored
    for module in listed:
        if module["type"].rpartition(".")[2] != "Dense":
            raise VerificationError(
                f"{files.path(MODULES)}: {module['type']:.100} is not implemented in a model of "
                "PyLate",
                "after the first module, only Dense is",
            )
    stated = {key: value for key, value in settings.items() if value is not None}
    marks = {name: _text(stated, key, origin) for key, name in PREFIXES.items()}
    prompts, _ = native.read_prompts({"prompts": stated.get("prompts")}, origin)
    composed = {
        n: marks.get(n, "") + prompts.get(n, "").removeprefix(marks.get(n, ""))
        for n in {**marks, **prompts}
    }
    attend = stated.get("attend_to_expansion_tokens", stated.get("attend_to_mask_tokens", False))
    length = stated.get("query_length", QUERY_LENGTH)
    words = stated.get("skiplist_words", list(string.punctuation))
    sentence_name = next(iter(files.matching(native.ANY_SENTENCE)), SENTENCE)
    sentence = {
        **files.json_if_any(sentence_name),
        "document_length": stated.get("document_length", DOCUMENT_LENGTH),
        **(
            {"query_length": length}
            if stated.get("do_query_expansion") is False
            else {"query_expansion": _expansion(length, attend)}
        ),
    }
    known = {k: v for k, v in settings.items() if k not in (*PYLATE_KEYS, "similarity_fn_name")}
    return _translated(
        files,
        modules=[first, *({**m, "type": f"{PACKAGES['Dense']}.Dense"} for m in listed)],
        settings={**known, "prompts": composed},
        sentence={sentence_name: sentence},
        skiplist=words,
    )


def _of_stanford(files: SourceFiles, projection: tuple[int, ...]) -> SourceFiles:
    metadata = files.json_if_any(METADATA)
    origin = str(files.path(METADATA))
    accepted = {"similarity": ("cosine", None), "interaction": ("colbert", None)}
    check_keys(metadata, METADATA_KEYS, origin, accepted)
    if len(projection) != 2:
        raise VerificationError(f"{files.directory}: {PROJECTION} is not a matrix")
    width, hidden = projection
    stated = {key: value for key, value in metadata.items() if value is not None}
    marks = {
        "query": _text(stated, "query_token_id", origin, "[unused0]") + " ",
        "document": _text(stated, "doc_token_id", origin, "[unused1]") + " ",
    }
    attend = stated.get("attend_to_mask_tokens", False)
    expansion = _expansion(stated.get("query_maxlen", QUERY_LENGTH), attend)
    sentence = {"query_expansion": expansion}
    if "doc_maxlen" in stated:
        sentence["document_length"] = stated["doc_maxlen"]
    dense = {
        "in_features": hidden,
        "out_features": width,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return _translated(
        files,
        modules=[
            {"path": "", "type": f"{PACKAGES['Transformer']}.Transformer"},
            {"path": "1_Dense", "type": f"{PACKAGES['Dense']}.Dense"},
        ],
        settings={"prompts": marks},
        sentence={SENTENCE: sentence},
        skiplist=list(string.punctuation) if stated.get("mask_punctuation", True) else [],
        more={"1_Dense/config.json": dense},
    )


def _translated(
    files: SourceFiles,
    *,
    modules: list[dict[str, Any]],
    settings: dict[str, Any],
    sentence: dict[str, dict[str, Any]],
    skiplist: Any,
    more: Mapping[str, Any] | None = None,
) -> SourceFiles:
    """Add what both apply without a module: the mask of documents, and unit length."""
    mask, unit = (
        f"{len(modules) + k}_{kind}" for k, kind in enumerate(("MultiVectorMask", "Normalize"))
    )
    added = [
        {"path": mask, "type": f"{PACKAGES['MultiVectorMask']}.MultiVectorMask"},
        {"path": unit, "type": f"{PACKAGES['Normalize']}.Normalize"},
    ]
    names = {"module_input_name": TOKENS, "module_output_name": TOKENS}
    return TranslatedFiles(
        files,
        {
            MODULES: [*modules, *added],
            SETTINGS: {**settings, "model_type": "MultiVectorEncoder"},
            **sentence,
            f"{mask}/config.json": {"skiplist_words": skiplist},
            f"{unit}/config.json": names,
            **(more or {}),
        },
    )


def _expansion(length: Any, attend: Any) -> dict[str, Any]:
    return {"strategy": "fixed", "length": length, "attend": attend}


def _text(stated: Mapping[str, Any], key: str, origin: str, default: str = "") -> str:
    value = stated.get(key, default)
    if not isinstance(value, str):
        raise VerificationError(f"{origin}: {key} = {shown(value)} is not a text")
    return value


def register_marks(tokenizer: "Tokenizer", files: SourceFiles, *, stanford: bool) -> None:
    """Let a tokenizer keep the tokens in front of texts whole, where it has them."""
    from tokenizers import AddedToken

    settings = files.json_if_any(SETTINGS)
    if stanford:
        metadata = files.json_if_any(METADATA)
        named = (("query_token_id", "[unused0]"), ("doc_token_id", "[unused1]"))
        marks = [metadata.get(key) or default for key, default in named]
    elif files.has(MODULES) and native_files(files) is not files:
        marks = [settings.get(key) for key in PREFIXES]
    else:
        return
    vocabulary = tokenizer.get_vocab()
    for mark in marks:
        choices = [mark, mark.split()[0]] if isinstance(mark, str) and mark.split() else []
        token = next((choice for choice in choices if choice in vocabulary), None)
        if token and tokenizer.encode(token, add_special_tokens=False).tokens != [token]:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])


def hub_pooling_files(
    pooling: Pooling, hidden_size: int, backbone: str = "Transformer"
) -> dict[str, bytes]:
    """Return the files with which sentence-transformers computes the same embeddings."""
    # A model that was read in PyLate's layout is written in it, if it has what the layout
    # describes.
    more = {METADATA: encode_hub_json(kept)} if (kept := pooling.extra.get(METADATA)) else {}
    stored = pooling.extra.get(SETTINGS, {})
    if not is_of_pylate(pooling):
        return {**native.hub_pooling_files(pooling, hidden_size, backbone), **more}
    marks = {name: stored[key] for key, name in PREFIXES.items() if key in stored}
    others = {k: v for k, v in stored.items() if k not in ("model_type", *PREFIXES)}
    extra = {**pooling.extra, SETTINGS: others}
    plain = msgspec.structs.replace(pooling, extra=extra)
    files = native.hub_pooling_files(plain, hidden_size, backbone)
    if not _is_described(pooling):
        return files
    *dense, mask, _ = pooling.steps
    assert isinstance(mask, MaskModule), "checked"
    expansion = pooling.query_expansion
    settings = {
        "model_type": PYLATE,
        "prompts": {n: t.removeprefix(marks.get(n, "")) for n, t in pooling.prompts.items()},
        "default_prompt_name": pooling.default_prompt_name,
        "similarity_fn_name": "MaxSim",
        **{key: marks.get(name, "") for key, name in PREFIXES.items()},
        "query_length": pooling.query_length if expansion is None else expansion.length,
        "document_length": pooling.document_length,
        "attend_to_expansion_tokens": expansion is not None and expansion.attend,
        "skiplist_words": list(mask.skiplist_words),
        "do_query_expansion": expansion is not None,
    }
    folders = [module_folder(number, step) for number, step in enumerate(dense, 1)]
    kinds = [f"{PACKAGES['Transformer']}.Transformer", *(DENSE for _ in dense)]
    modules = [
        {"idx": k, "name": str(k), "path": folder, "type": kind}
        for k, (folder, kind) in enumerate(zip(["", *folders], kinds, strict=True))
    ]
    configs = {}
    for name in (f"{folder}/config.json" for folder in folders):
        config = json.loads(files[name])
        absent = ("module_input_name", "module_output_name")  # from the Dense of PyLate
        configs[name] = {key: value for key, value in config.items() if key not in absent}
    sentence = {"max_seq_length": pooling.max_tokens, "do_lower_case": pooling.lowercase}
    return {
        MODULES: encode_hub_json(modules),
        SENTENCE: encode_hub_json({**sentence, **pooling.extra.get(SENTENCE, {})}),
        SETTINGS: encode_hub_json({**settings, **others}),
        **{name: encode_hub_json(config) for name, config in configs.items()},
    }


def is_of_pylate(pooling: Pooling) -> bool:
    """Return whether a model was read in PyLate's layout."""
    return bool(pooling.extra.get(SETTINGS, {}).get("model_type") == PYLATE)


def _is_described(pooling: Pooling) -> bool:
    """Return whether PyLate's files describe a model: Dense, a mask of documents, unit length."""
    *dense, mask, unit = (None, None, *pooling.steps)
    expansion = pooling.query_expansion
    tokens = (TOKENS, TOKENS)
    return (
        bool(dense[2:])
        and all(
            isinstance(step, DenseModule)
            and (step.module_input_name, step.module_output_name) == tokens
            for step in dense[2:]
        )
        and isinstance(mask, MaskModule)
        and (mask.skiplist_tasks, mask.keep_only_token_ids) == (("document",), None)
        and unit == NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS)
        and (expansion is None or (expansion.strategy, expansion.token) == ("fixed", None))
        and pooling.similarity_fn_name == "maxsim"
    )
