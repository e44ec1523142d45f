"""Modules of sentence encoders: their configuration, widths and weights."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import Content, write
from zoo.errors import VerificationError
from zoo.sentence_models import hub_pooling_files, read_pooling
from zoo.sentence_models.module_files import MODULE_KEYS, REFUSED_MODULES
from zoo.sentence_models.modules import (
    DenseModule,
    DropoutModule,
    LayerNormModule,
    MaskModule,
    NormalizeModule,
    PoolingModule,
    SpladePoolingModule,
    require_shapes,
    weighted_modules,
)
from zoo.sentence_models.pooling import Pooling, QueryExpansion
from zoo.sentence_models.sentence_transformers_files import (
    BACKBONES,
    SENTENCE_KEYS,
    STATIC,
    TASK_TRANSFORMER,
)
from zoo.tokenizers import SourceFiles

TOKENS = "token_embeddings"
PACKAGES_OF_MODULES = [
    f"sentence_transformers.{kind}.modules"
    for kind in (
        *("base", "sentence_transformer", "sparse_encoder"),
        *("multi_vector_encoder", "cross_encoder"),
    )
]
DENSE = {"in_features": 8, "out_features": 4, "activation_function": "torch.nn.Tanh"}
ENCODERS: dict[str, Pooling] = {
    "several modes, two Dense": Pooling(
        modules=(
            PoolingModule(modes=("cls", "mean"), include_prompt=False),
            DenseModule(in_features=16, out_features=8, activation_function="gelu"),
            DenseModule(
                in_features=8,
                out_features=4,
                bias=False,
                activation_function="identity",
                use_residual=True,
            ),
            NormalizeModule(),
        )
    ),
    "norm and dropout": Pooling(
        modules=(PoolingModule(), LayerNormModule(dimension=8), DropoutModule(dropout=0.5))
    ),
    "normalized tokens, pooled": Pooling(
        modules=(
            NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS),
            PoolingModule(modes=("max",)),
        )
    ),
    "normalization before pooling": Pooling(modules=(NormalizeModule(), PoolingModule())),
    "sparse": Pooling(
        modules=(SpladePoolingModule(pooling_strategy="sum", activation_function="log1p_relu"),),
        model_type="SparseEncoder",
        output="logits",
        similarity_fn_name="dot",
        max_active_dims=7,
    ),
    "late interaction": Pooling(
        modules=(
            DenseModule(
                in_features=8,
                out_features=4,
                bias=False,
                activation_function="identity",
                module_input_name=TOKENS,
                module_output_name=TOKENS,
            ),
            MaskModule(skiplist_words=(".", ","), keep_only_token_ids=(3, 4)),
            NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS),
        ),
        model_type="MultiVectorEncoder",
        similarity_fn_name="maxsim",
        query_length=16,
        document_length=32,
        query_expansion=QueryExpansion(strategy="fixed", length=16, attend=True),
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_write_and_read(tmp_path: Path, name: str) -> None:
    pooling = ENCODERS[name]
    files = hub_pooling_files(pooling, 8)
    found = read_pooling(SourceFiles(write(tmp_path, files)))
    assert found is not None
    assert {**vars_of(found), "extra": {}} == vars_of(pooling)


def vars_of(pooling: Pooling) -> dict[str, Any]:
    return {name: getattr(pooling, name) for name in Pooling.__struct_fields__}


def test_the_weights_of_modules_are_named_by_their_folders() -> None:
    named = weighted_modules(ENCODERS["several modes, two Dense"].steps)
    assert named == {
        "2_Dense": {"linear.weight": (8, 16), "linear.bias": (8,)},
        "3_Dense": {"linear.weight": (4, 8), "residual.weight": (4, 8)},
    }
    assert weighted_modules(ENCODERS["norm and dropout"].steps) == {
        "2_LayerNorm": {"norm.weight": (8,), "norm.bias": (8,)}
    }


def test_the_dimension_of_embeddings() -> None:
    two, sparse = ENCODERS["several modes, two Dense"], ENCODERS["sparse"]
    assert (two.dimension(8), sparse.dimension(100), Pooling().dimension(8)) == (4, 100, 8)
    assert (two.normalizes, two.pools_prompt, sparse.normalizes) == (True, False, False)
    assert Pooling(modules=two.modules, truncate_dim=3).dimension(8) == 3


def of_dense(**changes: Any) -> dict[str, Content]:
    config = {key: value for key, value in {**DENSE, **changes}.items() if value is not None}
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    return {
        "modules.json": [
            {"path": path, "type": f"sentence_transformers.models.{kind}"}
            for path, kind in kinds.items()
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 8},
        "2_Dense/config.json": config,
    }


def library_modules() -> set[str]:
    """Return the names of all modules of sentence-transformers, without base classes."""
    names = {name for package in PACKAGES_OF_MODULES for name in import_module(package).__all__}
    return names - {"Module", "InputModule", "BaseTokenPooling"}


def test_every_module_of_the_library_is_read_or_refused() -> None:
    known = {*MODULE_KEYS, *BACKBONES, STATIC} - {TASK_TRANSFORMER}  # a module of a model's own
    assert library_modules() == {*known, *REFUSED_MODULES}
    assert known & {*REFUSED_MODULES} == set()


def test_every_key_that_the_library_writes_is_known() -> None:
    """Of the configurations of modules, as its classes declare them."""
    tables = {**MODULE_KEYS, **dict.fromkeys(BACKBONES, SENTENCE_KEYS)}
    unknown = [
        (kind, name, key)
        for kind in PACKAGES_OF_MODULES
        for name in import_module(kind).__all__
        for key in getattr(getattr(import_module(kind), name), "config_keys", ())
        if name in tables and key not in tables[name]
    ]
    assert unknown == []


def with_key(file: str, **value: Any) -> dict[str, Content]:
    """Return the files of an encoder, with a key in one of them."""
    files: dict[str, Any] = dict(of_dense())
    if file == "modules.json":
        files[file][0] |= value
    else:
        files[file] = {**files.get(file, {}), **value}
    return files


def with_module(kind: str, place: int) -> dict[str, Content]:
    """Return the files of an encoder with another module in a place."""
    files = of_dense()
    listed: Any = files["modules.json"]
    listed[place]["type"] = f"sentence_transformers.models.{kind}"
    return files


@pytest.mark.parametrize(
    ("files", "name"),
    [
        *((with_module(kind, 0), kind) for kind in REFUSED_MODULES),
        *((with_module(kind, 2), kind) for kind in REFUSED_MODULES),
        *(
            (with_key(file, temperature=2), "temperature")
            for file in (
                *("config_sentence_transformers.json", "modules.json"),
                *("sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json"),
            )
        ),
        (with_key("2_Dense/config.json", init_weight=[1]), "init_weight"),
        (with_key("modules.json", kwargs=["task"]), "kwargs"),
        (with_key("sentence_bert_config.json", module_output_name="pixels"), "module_output_name"),
        (with_key("sentence_bert_config.json", model_args={"use_x": 1}), "model_args"),
        (with_key("sentence_bert_config.json", processing_kwargs={"a": 1}), "processing_kwargs"),
        (with_key("sentence_bert_config.json", modality_config={}), "modality_config"),
        (with_key("sentence_bert_config.json", tokenizer_name_or_path="x"), "tokenizer_name_or"),
        (with_key("config_sentence_transformers.json", similarity_fn_name="l3"), "similarity_fn"),
        (with_key("1_Pooling/config.json", pooling_mode="median"), "pooling_mode"),
        (with_key("2_Dense/config.json", module_output_name=3), "module_output_name"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    tmp_path: Path, files: dict[str, Content], name: str
) -> None:
    with pytest.raises(VerificationError, match=name) as caught:
        read_pooling(SourceFiles(write(tmp_path, files)))
    assert str(tmp_path) in caught.value.what and "\n" not in str(caught.value)


def test_many_modules_are_refused_before_they_are_read(tmp_path: Path) -> None:
    files = of_dense()
    listed: Any = files["modules.json"]
    dropout = {"path": "3_Dropout", "type": "sentence_transformers.models.Dropout"}
    files["modules.json"] = [*listed, *[dropout] * 100_000]
    with pytest.raises(VerificationError, match=r"modules\.json: number of modules is 100,003"):
        read_pooling(SourceFiles(write(tmp_path, files)))


def test_defaults_of_dense_are_the_library_s(tmp_path: Path) -> None:
    pooling = read_pooling(SourceFiles(write(tmp_path, of_dense(activation_function=None))))
    dense = DenseModule(in_features=8, out_features=4)
    assert pooling == Pooling(modules=(PoolingModule(), dense))
    assert (dense.bias, dense.activation_function, dense.use_residual) == (True, "tanh", False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_features": None}, "2_Dense/config.json has no in_features"),
        ({"out_features": 0}, "out_features = 0 is not a positive number"),
        ({"bias": "no"}, "2_Dense/config.json: .*bias"),
        ({"activation_function": "torch.nn.Hardtanh"}, "activation_function = .*Hardtanh' is not"),
        ({"activation_function": "my.Function"}, "'my.Function' is not implemented; of torch.nn"),
        ({"module_input_name": "pixels"}, "modules.json: 2_Dense: Dense reads pixels, which no"),
        ({"temperature": 2}, "2_Dense/config.json: the key 'temperature' is unknown"),
    ],
)
def test_settings_of_dense_that_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(VerificationError, match=message) as caught:
        read_pooling(SourceFiles(write(tmp_path, of_dense(**changes))))
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_dense_of_the_wrong_width() -> None:
    modules = (PoolingModule(), DenseModule(in_features=9, out_features=4))
    with pytest.raises(VerificationError, match=r"2_Dense: in_features of Dense is 9, .* 8"):
        Pooling(modules=modules).features(8)
    modules = (PoolingModule(modes=("cls", "max")), DenseModule(in_features=16, out_features=4))
    assert Pooling(modules=modules).dimension(8) == 4


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"linear.weight": (4, 8)}, "w has no linear.bias"),
        ({"linear.weight": (8, 4), "linear.bias": (4,)}, r"shape \[8, 4\], not \[4, 8\]"),
        (
            {"linear.weight": (4, 8), "linear.bias": (4,), "scale": (1,)},
            "w has an unknown tensor 'scale'",
        ),
    ],
)
def test_every_tensor_of_a_module_is_accounted_for(found: Any, message: str) -> None:
    shapes = DenseModule(in_features=8, out_features=4).tensors()
    with pytest.raises(VerificationError, match=message):
        require_shapes(found, shapes, "w")
    require_shapes(shapes, shapes, "w")
