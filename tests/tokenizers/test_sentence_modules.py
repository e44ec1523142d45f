"""Modules of sentence encoders: their configuration, widths and weights."""

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import Content, write
from zoo.errors import VerificationError
from zoo.tokenizers import SourceFiles, hub_pooling_files, read_pooling
from zoo.tokenizers.pooling import Pooling, QueryExpansion
from zoo.tokenizers.sentence_modules import (
    DenseModule,
    DropoutModule,
    LayerNormModule,
    MaskModule,
    NormalizeModule,
    PoolingModule,
    SpladePoolingModule,
    same_tensors,
    weighted_modules,
)

TOKENS = "token_embeddings"
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
        ({"module_input_name": "pixels"}, "modules.json: Dense reads pixels, which no module"),
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
    with pytest.raises(VerificationError, match=r"in_features of Dense is 9, .* width of 8"):
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
        same_tensors(found, shapes, "w")
    same_tensors(shapes, shapes, "w")
