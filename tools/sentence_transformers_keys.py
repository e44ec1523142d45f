"""Record the keys that an installed sentence-transformers reads for models like ours.

``python -m tools.sentence_transformers_keys`` writes tests/fixtures/sentence_transformers_keys.json
from its source, without importing it: a key is in ``config_keys`` or ``config_key_renames`` of a
module's class, an argument of the class, or looked up in what was read.
"""

import ast
import json
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

LIST = Path(__file__).parents[1] / "tests" / "fixtures" / "sentence_transformers_keys.json"
KINDS = ("sentence_transformer", "sparse_encoder", "multi_vector_encoder", "cross_encoder")
# file -> source files; the class, function or variable that has its keys; variables that are looked
# up
SOURCES = {
    "config_sentence_transformers.json": (
        tuple(f"{folder}/model.py" for folder in ("base", *KINDS)),
        "_get_model_config",
        ("model_config", "config"),
    ),
    "modules.json": (("base/model.py",), "module_config", ("module_config",)),
    "sentence_bert_config.json": (("base/modules/transformer.py",), "Transformer", ("config",)),
    "Pooling": (("sentence_transformer/modules/pooling.py",), "Pooling", ("config",)),
    "Normalize": (("base/modules/normalize.py",), "Normalize", ("config",)),
    "Dense": (("base/modules/dense.py",), "Dense", ("config",)),
    "LayerNorm": (("sentence_transformer/modules/layer_norm.py",), "LayerNorm", ("config",)),
    "Dropout": (("sentence_transformer/modules/dropout.py",), "Dropout", ("config",)),
    "SpladePooling": (
        ("sparse_encoder/modules/splade_pooling.py",),
        "SpladePooling",
        ("config",),
    ),
    "MultiVectorMask": (
        ("multi_vector_encoder/modules/multi_vector_mask.py",),
        "MultiVectorMask",
        ("config",),
    ),
}
# arguments of classes that loading sets
SET_BY_LOADING = {"self", "model_name_or_path", "cache_dir", "backend"}


def texts(node: ast.AST | None) -> Iterator[str]:
    """Yield the string constants of a list, or the keys of a dictionary."""
    if isinstance(node, ast.Dict):
        node = ast.List([key for key in node.keys if key is not None])
    for item in ast.walk(node) if node is not None else ():
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value


def looked_up(tree: ast.AST, variables: tuple[str, ...]) -> Iterator[str]:
    """Yield the keys that are looked up in variables."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get" | "pop"), args=[key, *_]
            ) if name in variables:
                yield from texts(key) if isinstance(key, ast.Constant) else ()
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant() as key) if (
                name in variables
            ):
                yield from texts(key)


def declared(tree: ast.AST, owner: str) -> Iterator[str]:
    """Yield the keys of the class, of what the function returns, or that the variable gets."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) if name == owner:
                for part in ast.walk(node):
                    yield from _of_dicts(part.value) if isinstance(part, ast.Return) else ()
            case ast.Assign(targets=[ast.Name(id=name)]) if name == owner:
                yield from _of_dicts(node.value)
            case ast.ClassDef(name=name) if name == owner:
                yield from _of_class(node)
            case ast.Constant(value=str() as text) if text.startswith("pooling_mode_"):
                yield text


def _of_dicts(value: ast.expr | None) -> Iterator[str]:
    for side in (value.left, value.right) if isinstance(value, ast.BinOp) else (value,):
        yield from texts(side) if isinstance(side, ast.Dict) else ()


def _of_class(owner: ast.ClassDef) -> Iterator[str]:
    for node in owner.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="config_keys"), value=value):
                yield from texts(value)
            case ast.Assign(targets=[ast.Name(id="config_keys" | "config_key_renames")]):
                yield from texts(node.value)
            case ast.FunctionDef(name="__init__", args=arguments):
                names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
                yield from names - SET_BY_LOADING
            case ast.FunctionDef():  # former names of keys
                for part in ast.walk(node):
                    if isinstance(part, ast.Assign) and isinstance(part.value, ast.Dict):
                        names = {*texts(part.value)}
                        yield from names if "model_args" in names else ()


def installed_keys() -> dict[str, list[str]]:
    """Return file -> the keys that the installed release reads."""
    spec = util.find_spec("sentence_transformers")
    if spec is None or spec.origin is None:
        raise SystemExit("install sentence-transformers")
    folder = Path(spec.origin).parent
    files = dict[str, list[str]]()
    for file, (paths, owner, variables) in SOURCES.items():
        trees = [ast.parse((folder / path).read_text("utf-8")) for path in paths]
        found = {key for tree in trees for key in looked_up(tree, variables)}
        files[file] = sorted(found | {key for tree in trees for key in declared(tree, owner)})
    return files


def main() -> None:
    """Write the list."""
    release = metadata.version("sentence-transformers")
    record = {"sentence-transformers": release, "files": installed_keys()}
    LIST.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
