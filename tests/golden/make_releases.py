"""Write the weights of golden files in the format of the authors' original releases.

    pip install tensorflow-cpu safetensors    # in an environment of its own
    PYTHONPATH=. python tests/golden/make_releases.py tests/fixtures/releases

Made with TensorFlow 2.21.0 (``tf.compat.v1.train.Saver``). The expected outputs are in the golden
files, computed by the reference library and, for the bidirectional language model, by numpy.
Names of variables follow run_pretraining.py and modeling.py of google-research/electra and
google-research/albert, and training.py of allenai/bilm-tf.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.golden.make_tensorflow import save

Values = dict[str, NDArray[Any]]
GOLDEN = Path(__file__).parent


def golden(path: str) -> Values:
    tensors = load_file(GOLDEN / f"{path}.safetensors")
    return {n.removeprefix("weights/"): v for n, v in tensors.items() if n.startswith("weights/")}


def dense(values: Values, hub: str, name: str) -> Values:
    """Return the variables of a linear map; TensorFlow's kernels have the shape (in, out)."""
    kernel = np.ascontiguousarray(values[f"{hub}.weight"].T)
    return {f"{name}/kernel": kernel, f"{name}/bias": values[f"{hub}.bias"]}


def norm(values: Values, hub: str, name: str) -> Values:
    return {f"{name}/gamma": values[f"{hub}.weight"], f"{name}/beta": values[f"{hub}.bias"]}


def embeddings(values: Values, hub: str, name: str) -> Values:
    tables = [f"{kind}_embeddings" for kind in ("word", "position", "token_type")]
    renamed = {f"{name}/{table}": values[f"{hub}.{table}.weight"] for table in tables}
    return renamed | norm(values, f"{hub}.LayerNorm", f"{name}/LayerNorm")


def electra_trunk(values: Values, scope: str) -> Values:
    renamed = dense(values, "electra.embeddings_project", f"{scope}/embeddings_project")
    for i in range(2):
        hub, name = f"electra.encoder.layer.{i}", f"{scope}/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            renamed |= dense(
                values, f"{hub}.attention.self.{part}", f"{name}/attention/self/{part}"
            )
        renamed |= dense(values, f"{hub}.attention.output.dense", f"{name}/attention/output/dense")
        renamed |= norm(
            values, f"{hub}.attention.output.LayerNorm", f"{name}/attention/output/LayerNorm"
        )
        renamed |= dense(values, f"{hub}.intermediate.dense", f"{name}/intermediate/dense")
        renamed |= dense(values, f"{hub}.output.dense", f"{name}/output/dense")
        renamed |= norm(values, f"{hub}.output.LayerNorm", f"{name}/output/LayerNorm")
    return renamed


def electra(shares: str) -> Values:
    """Return the variables of generator, discriminator and optimizer.

    Args:
        shares: parts shared by discriminator and generator: nothing, embeddings or all.
    """
    judge, writer = golden("electra/replaced-token-detection"), golden("electra/masked-lm")
    head, made = "discriminator_predictions", "generator_predictions"
    trunk = writer if shares == "all" else judge
    renamed = embeddings(trunk, "electra.embeddings", "electra/embeddings")
    renamed |= electra_trunk(trunk, "electra")
    renamed |= dense(judge, f"{head}.dense", f"{head}/dense")
    renamed |= dense(judge, f"{head}.dense_prediction", f"{head}/dense_1")
    if shares == "nothing":
        renamed |= embeddings(writer, "electra.embeddings", "generator/embeddings")
    if shares != "all":
        renamed |= electra_trunk(writer, "generator")
    renamed |= dense(writer, f"{made}.dense", f"{made}/dense")
    renamed |= norm(writer, f"{made}.LayerNorm", f"{made}/LayerNorm")
    renamed[f"{made}/output_bias"] = writer["generator_lm_head.bias"]
    slots = {f"{n}/{slot}": v + 1 for n, v in renamed.items() for slot in ("adam_m", "adam_v")}
    few = {n: v for n, v in slots.items() if "/embeddings/" in n}  # keeps the file small
    state: Values = {"global_step": np.array(7, np.int64)}
    state["temperature"] = np.array(1, np.float32)
    return renamed | few | state


def albert(case: str, prefix: str, groups: int, inner: int) -> Values:
    values = golden(f"albert/{case}")
    renamed = embeddings(values, f"{prefix}embeddings", "bert/embeddings")
    map_in = "encoder/embedding_hidden_mapping_in"
    renamed |= dense(values, prefix + map_in.replace("/", "."), f"bert/{map_in}")
    for group in range(groups):
        for k in range(inner):
            hub = f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{k}"
            name = f"bert/encoder/transformer/group_{group}/inner_group_{k}"
            for part in ("query", "key", "value"):
                renamed |= dense(
                    values, f"{hub}.attention.{part}", f"{name}/attention_1/self/{part}"
                )
            renamed |= dense(values, f"{hub}.attention.dense", f"{name}/attention_1/output/dense")
            renamed |= norm(values, f"{hub}.attention.LayerNorm", f"{name}/LayerNorm")
            renamed |= dense(values, f"{hub}.ffn", f"{name}/ffn_1/intermediate/dense")
            renamed |= dense(values, f"{hub}.ffn_output", f"{name}/ffn_1/intermediate/output/dense")
            renamed |= norm(values, f"{hub}.full_layer_layer_norm", f"{name}/LayerNorm_1")
    renamed |= dense(values, f"{prefix}pooler", "bert/pooler/dense")
    if case == "pretraining":
        head, order = "cls/predictions", "sop_classifier.classifier"
        renamed |= dense(values, "predictions.dense", f"{head}/transform/dense")
        renamed |= norm(values, "predictions.LayerNorm", f"{head}/transform/LayerNorm")
        renamed[f"{head}/output_bias"] = values["predictions.bias"]
        renamed["cls/seq_relationship/output_weights"] = values[f"{order}.weight"]
        renamed["cls/seq_relationship/output_bias"] = values[f"{order}.bias"]
        renamed["global_step"] = np.array(7, np.int64)
    return renamed


def elmo() -> Values:
    """Return variables in the shapes of the HDF5 file, which ``dump_weights`` writes from them."""
    values = golden("elmo/pretraining")
    cells = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    renamed: Values = {}
    for name, value in values.items():
        if name.startswith("RNN_"):
            way, _, _, cell, _, last = name.split("/")
            number = cell.removeprefix("Cell")
            name = f"{way}/rnn/multi_rnn_cell/cell_{number}/lstm_cell/{cells[last]}"
        renamed[f"lm/{name}"] = value
    renamed |= {f"{n}/Adagrad": np.abs(v) + 1 for n, v in renamed.items() if "/softmax/" in n}
    renamed["global_step"] = np.array(3.0, np.float32)
    renamed["train_perplexity"] = np.array(9.5, np.float32)
    return renamed


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for shares in ("nothing", "embeddings", "all"):
        save(folder / f"electra_shares_{shares}", electra(shares))
    save(folder / "albert_pretraining", albert("pretraining", "albert.", 1, 1))
    save(folder / "albert_groups", albert("none-groups", "", 2, 2))
    save(folder / "elmo_model.ckpt-3", elmo())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
