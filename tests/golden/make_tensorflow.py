"""Write the small TensorFlow 1 checkpoints of the tests with TensorFlow.

    pip install tensorflow-cpu          # in an environment of its own
    python tests/golden/make_tensorflow.py tests/fixtures/tensorflow

Made with TensorFlow 2.21.0 (``tf.compat.v1.train.Saver``). ``values.npz`` holds the saved values.
The names are those of Google's release of BERT, with the slots of its optimizer.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, WIDTH, INNER, POSITIONS, LAYERS = 19, 8, 12, 10, 2


def shapes() -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the variables in google-research/bert's run_pretraining.py."""
    sizes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (VOCABULARY, WIDTH),
        "bert/embeddings/position_embeddings": (POSITIONS, WIDTH),
        "bert/embeddings/token_type_embeddings": (2, WIDTH),
        "bert/pooler/dense/kernel": (WIDTH, WIDTH),
        "bert/pooler/dense/bias": (WIDTH,),
        "cls/predictions/transform/dense/kernel": (WIDTH, WIDTH),
        "cls/predictions/transform/dense/bias": (WIDTH,),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, WIDTH),
        "cls/seq_relationship/output_bias": (2,),
    }
    norms = ["bert/embeddings", "cls/predictions/transform"]
    for i in range(LAYERS):
        layer = f"bert/encoder/layer_{i}"
        norms += [f"{layer}/attention/output", f"{layer}/output"]
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            sizes[f"{layer}/attention/{part}/kernel"] = (WIDTH, WIDTH)
            sizes[f"{layer}/attention/{part}/bias"] = (WIDTH,)
        sizes[f"{layer}/intermediate/dense/kernel"] = (WIDTH, INNER)
        sizes[f"{layer}/intermediate/dense/bias"] = (INNER,)
        sizes[f"{layer}/output/dense/kernel"] = (INNER, WIDTH)
        sizes[f"{layer}/output/dense/bias"] = (WIDTH,)
    for norm in norms:
        sizes[f"{norm}/LayerNorm/gamma"] = sizes[f"{norm}/LayerNorm/beta"] = (WIDTH,)
    return sizes


def main(folder: Path) -> None:
    """Save random values: one complete checkpoint, and one in other dtypes."""
    generator = np.random.default_rng(0)
    values: dict[str, np.ndarray] = {}
    for name, shape in shapes().items():
        values[name] = generator.standard_normal(shape).astype(np.float32)
        for slot in ("adam_m", "adam_v"):
            values[f"{name}/{slot}"] = generator.standard_normal(shape).astype(np.float32)
    values["global_step"] = np.array(1000, np.int64)
    save(folder / "bert_model.ckpt", values)
    odd = {
        "a/half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "a/double": np.array(2.5),
        "b/bool": np.array([True, False, True]),
        "b/empty": np.zeros((0, 4), np.float32),
        "b/int32": np.arange(-4, 4, dtype=np.int32),
        "b/uint8": np.arange(7, dtype=np.uint8),
        "c" * 300: np.arange(5, dtype=np.float32),  # a length of more than one varint byte
    }
    save(folder / "kinds.ckpt", odd)
    every: dict[str, Any] = {n.replace("/", "|"): v for n, v in (values | odd).items()}
    np.savez_compressed(folder / "values.npz", **every)


def save(path: Path, values: dict[str, np.ndarray]) -> None:
    """Save arrays as variables of the given names."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as run:
        made = [v1.get_variable(n, initializer=v, use_resource=False) for n, v in values.items()]
        run.run(v1.global_variables_initializer())
        v1.train.Saver(made).save(run, str(path), write_meta_graph=False, write_state=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
