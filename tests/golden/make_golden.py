"""Create the golden files of a family with the reference library.

    python -m tests.golden.make_golden FAMILY [CASE...]

Only the names of heads and outputs are taken from the family. Configuration, weights, names of
tensors and formulas are those of the reference library.
"""

import contextlib
import inspect
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

from zoo.conformance.golden import Golden
from zoo.conformance.hf_reference import keep_float64, named_outputs
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.plugins import get_family

Case = tuple[str, dict[str, Any], dict[str, Any]]  # head, configuration, arguments of the class

SMALL = {
    "vocab_size": 24,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
    "type_vocab_size": 3,
}
LEFT_TO_RIGHT = {
    "vocab_size": 24,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 10,
    "pad_token_id": 3,
}
BOTH_WAYS = {
    "vocab_size": 24,
    "d_model": 8,
    "d_kv": 6,
    "d_ff": 12,
    "num_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 7,
    "decoder_start_token_id": 0,
}
FAIRSEQ = {
    "vocab_size": 24,
    "d_model": 8,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 10,
    "max_position_embeddings": 10,
}
# families with other keys than SMALL
SHAPES: dict[str, dict[str, Any]] = {"bart": FAIRSEQ, "gpt": LEFT_TO_RIGHT, "t5": BOTH_WAYS}
# Families whose outputs at padding the library computes in another way: their rows have none.
ALIKE = ("ettin", "llama", "m2m100", "opt", "xlm", "xlnet")
VERSION_1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FIRST_GPT = {"model_type": "openai-gpt"}
HALF = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "max_position_embeddings": 10}
SHAPES |= {
    "roberta": {**SMALL, "max_position_embeddings": 12},
    "distilbert": {"vocab_size": 24, **HALF},
    "electra": {**SMALL, "embedding_size": 6},
    "albert": {**SMALL, "embedding_size": 6, "num_hidden_layers": 3},
    # heads of size 12: the library's float32 root in the scale is an exact 6
    "deberta": {**SMALL, "hidden_size": 24},
    "modernbert": {
        **{key: value for key, value in SMALL.items() if key != "type_vocab_size"},
        **{"num_hidden_layers": 4, "local_attention": 4, "pad_token_id": 3},
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 1),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
    },
}
NO_TYPES = {key: value for key, value in SMALL.items() if key != "type_vocab_size"}
GROUPED = {**NO_TYPES, "num_key_value_heads": 1, "pad_token_id": 3}
SHAPES |= {
    "bloom": {"vocab_size": 24, "hidden_size": 8, "n_layer": 2, "n_head": 2, "pad_token_id": 3},
    "ernie": {**SMALL, "use_task_id": True, "task_type_vocab_size": 2},
    "ettin": {**SHAPES["modernbert"], "local_attention": 4},
    # Rows of more than 7 tokens have block-sparse attention.
    "bigbird": {**SMALL, "block_size": 1, "num_random_blocks": 1, "sep_token_id": 5},
    # Sources of more than 7 tokens have block-sparse attention.
    "bigbird_pegasus": {**FAIRSEQ, "block_size": 1, "num_random_blocks": 1},
    "eurobert": {**GROUPED, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 4},
    "gte": SMALL,
    "jina": SMALL,
    "llama": {**GROUPED, "bos_token_id": 1, "eos_token_id": 2},
    "m2m100": FAIRSEQ,
    "marian": {**FAIRSEQ, "pad_token_id": 23, "decoder_start_token_id": 23},
    "mpnet": {**NO_TYPES, "max_position_embeddings": 12},
    "neox": {**NO_TYPES, "rotary_pct": 0.5, "pad_token_id": 3},
    "nomic": SMALL,
    "opt": {**NO_TYPES, "ffn_dim": 12, "word_embed_proj_dim": 8},
    "pegasus": FAIRSEQ,
    "roformer": SMALL,
    "xlm": {
        "vocab_size": 24,
        "emb_dim": 8,
        "n_layers": 2,
        "n_heads": 2,
        "max_position_embeddings": 10,
        "n_langs": 3,
    },
    "xlnet": {"vocab_size": 24, "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 12},
}
ENCODER: dict[str, Case] = {
    "none": ("none", {}, {}),
    "masked-lm": ("masked-lm", {}, {}),
    "masked-lm-untied": ("masked-lm", {"tie_word_embeddings": False}, {}),
    "sequence-classification": ("sequence-classification", {"num_labels": 3}, {}),
    "regression": ("sequence-classification", {"num_labels": 1}, {}),
    "token-classification": ("token-classification", {"num_labels": 5}, {}),
    "question-answering": ("question-answering", {}, {}),
    "multiple-choice": ("multiple-choice", {}, {}),
}
LATER_DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "position_buckets": 6,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "legacy": False,
}
FIRST_DEBERTA = {
    "model_type": "deberta",
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}
GEMMA: dict[str, Any] = {
    "hidden_size": 16,  # Its root is exact in float32.
    "head_dim": 6,
    "sliding_window": 3,
    "query_pre_attn_scalar": 5,
    "hidden_activation": "gelu_pytorch_tanh",
    "final_logit_softcapping": 20.0,
}
DECODER: dict[str, Case] = {"none": ("none", {}, {}), "causal-lm": ("causal-lm", {}, {})}
SEQ2SEQ: dict[str, Case] = {"none": ("none", {}, {}), "seq2seq-lm": ("seq2seq-lm", {}, {})}
WITHOUT_POOLER: Case = ("none", {}, {"add_pooling_layer": False})
WORDS: dict[str, Case] = {
    "none": ("none", {}, {}),
    "masked-lm": ("masked-lm", {}, {}),
    "sequence-classification": ("sequence-classification", {"num_labels": 3}, {}),
}
CASES: dict[str, dict[str, Case]] = {
    # The library rounds the constant of GELU, and an error of 1e-9 grows from block to block.
    "bloom": {"none": ("none", {}, {}), "causal-lm": ("causal-lm", {"n_layer": 1}, {})},
    "ernie": WORDS,
    "ettin": DECODER,
    "eurobert": WORDS,
    "gte": {
        **WORDS,
        "none": WITHOUT_POOLER,
        "masked-lm-untied": ("masked-lm", {"tie_word_embeddings": False}, {}),
    },
    "jina": WORDS,
    "llama": {
        **DECODER,
        "biases": ("causal-lm", {"attention_bias": True, "mlp_bias": True}, {}),
        "wavelengths": (
            "none",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 100.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8,
                }
            },
            {},
        ),
        "mistral": ("causal-lm", {"model_type": "mistral", "sliding_window": 3}, {}),
        "qwen2": ("causal-lm", {"model_type": "qwen2"}, {}),
        "qwen3": ("causal-lm", {"model_type": "qwen3", "head_dim": 6}, {}),
        "smollm3": ("causal-lm", {"model_type": "smollm3", "no_rope_layer_interval": 2}, {}),
        "olmo2": ("causal-lm", {"model_type": "olmo2"}, {}),
        "gemma2": (
            "causal-lm",
            {"model_type": "gemma2", **GEMMA, "attn_logit_softcapping": 5.0},
            {},
        ),
        "gemma3": ("causal-lm", {"model_type": "gemma3_text", **GEMMA}, {}),
    },
    "m2m100": SEQ2SEQ,
    "marian": {**SEQ2SEQ, "scaled": ("seq2seq-lm", {"scale_embedding": True}, {})},
    "mpnet": WORDS,
    "neox": {**DECODER, "one-after-the-other": ("none", {"use_parallel_residual": False}, {})},
    "nomic": {**WORDS, "none": WITHOUT_POOLER},
    "opt": {
        **DECODER,
        "xglm": (
            "causal-lm",
            {
                "model_type": "xglm",
                "d_model": 8,
                "num_layers": 2,
                "attention_heads": 2,
            },
            {},
        ),
    },
    "pegasus": {**SEQ2SEQ, "scaled": ("seq2seq-lm", {"scale_embedding": True}, {})},
    "bigbird": {**ENCODER, "pretraining": ("pretraining", {}, {})},
    "bigbird_pegasus": {
        **SEQ2SEQ,
        "biases": ("seq2seq-lm", {"use_bias": True}, {}),
        "sequence-classification": ("sequence-classification", {"num_labels": 4}, {}),
        "question-answering": ("question-answering", {}, {}),
    },
    "roformer": WORDS,
    "xlm": {
        **WORDS,
        "sinusoidal": ("masked-lm", {"sinusoidal_embeddings": True}, {}),
        "flaubert": ("masked-lm", {"model_type": "flaubert"}, {}),
    },
    "xlnet": {**WORDS, "question-answering": ("question-answering", {}, {})},
    "deberta": {
        "none": ("none", LATER_DEBERTA, {}),
        "absolute": ("none", {"num_attention_heads": 6}, {}),  # heads of size 4: divided by 2
        "masked-lm": ("masked-lm", LATER_DEBERTA, {}),
        "masked-lm-legacy": ("masked-lm", {**LATER_DEBERTA, "legacy": True}, {}),
        "sequence-classification": (
            "sequence-classification",
            {**LATER_DEBERTA, "num_labels": 3},
            {},
        ),
        "token-classification": ("token-classification", {**LATER_DEBERTA, "num_labels": 3}, {}),
        "question-answering": ("question-answering", LATER_DEBERTA, {}),
        "multiple-choice": ("multiple-choice", LATER_DEBERTA, {}),
        "convolution": ("none", {**LATER_DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"}, {}),
        "own-keys": ("none", {**LATER_DEBERTA, "share_att_key": False}, {}),
        "first-none": ("none", FIRST_DEBERTA, {}),
        "first-masked-lm": ("masked-lm", {**FIRST_DEBERTA, "legacy": False}, {}),
    },
    "roberta": {
        **ENCODER,
        "xlm-roberta": ("masked-lm", {"model_type": "xlm-roberta", "type_vocab_size": 1}, {}),
        "camembert": ("sequence-classification", {"model_type": "camembert"}, {}),
        "xlm-roberta-xl": ("masked-lm", {"model_type": "xlm-roberta-xl"}, {}),
    },
    "distilbert": ENCODER,
    "modernbert": {
        **ENCODER,
        "classification-by-mean": ("sequence-classification", {"classifier_pooling": "mean"}, {}),
    },
    "electra": {
        **ENCODER,
        "none-without-projection": ("none", {"embedding_size": 8}, {}),
        "replaced-token-detection": ("replaced-token-detection", {"hidden_act": "relu"}, {}),
    },
    "albert": {
        **ENCODER,
        "pretraining": ("pretraining", {}, {}),
        "none-groups": ("none", {"num_hidden_groups": 2, "inner_group_num": 2}, {}),
    },
    "bart": {
        "none": ("none", {"scale_embedding": True}, {}),
        "seq2seq-lm": ("seq2seq-lm", {}, {}),
        "seq2seq-lm-untied": ("seq2seq-lm", {"tie_word_embeddings": False}, {}),
        "sequence-classification": ("sequence-classification", {"num_labels": 4}, {}),
        "question-answering": ("question-answering", {"activation_function": "relu"}, {}),
    },
    "bert": {
        "none": ("none", {}, {}),
        "none-without-pooler": ("none", {}, {"add_pooling_layer": False}),
        "none-gelu-new": ("none", {"hidden_act": "gelu_new", "layer_norm_eps": 0.01}, {}),
        "masked-lm": ("masked-lm", {}, {}),
        "masked-lm-untied": ("masked-lm", {"tie_word_embeddings": False, "hidden_act": "relu"}, {}),
        "pretraining": ("pretraining", {}, {}),
        "sequence-classification": ("sequence-classification", {"num_labels": 3}, {}),
        "regression": ("sequence-classification", {"num_labels": 1}, {}),
        "token-classification": ("token-classification", {"num_labels": 5}, {}),
        "question-answering": ("question-answering", {}, {}),
        "multiple-choice": ("multiple-choice", {}, {}),
    },
    "gpt": {
        "none": ("none", {}, {}),
        "causal-lm": ("causal-lm", {}, {}),
        "causal-lm-untied": ("causal-lm", {"tie_word_embeddings": False, "n_inner": 12}, {}),
        "causal-lm-scaled": (
            "causal-lm",
            {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
            {},
        ),
        "sequence-classification": ("sequence-classification", {"num_labels": 3}, {}),
        "token-classification": ("token-classification", {"num_labels": 5}, {}),
        "question-answering": ("question-answering", {}, {}),
        "multiple-choice": ("multiple-choice", {}, {}),
        "first-none": ("none", FIRST_GPT, {}),
        "first-causal-lm": ("causal-lm", {**FIRST_GPT, "afn": "silu"}, {}),
        "first-classification": ("sequence-classification", {**FIRST_GPT, "num_labels": 1}, {}),
    },
    "t5": {
        "none": ("none", {}, {}),
        "encoder": ("encoder", {}, {}),
        "seq2seq-lm": ("seq2seq-lm", {"num_decoder_layers": 1}, {}),
        "version-1.1-none": ("none", VERSION_1_1, {}),
        "version-1.1-seq2seq-lm": ("seq2seq-lm", VERSION_1_1, {}),
        "multilingual": ("seq2seq-lm", {**VERSION_1_1, "model_type": "mt5"}, {}),
        "umt5": (
            "seq2seq-lm",
            {"d_model": 16, "feed_forward_proj": "gated-gelu", "model_type": "umt5"},
            {},
        ),
        "sequence-classification": ("sequence-classification", {"num_labels": 3}, {}),
        "token-classification": ("token-classification", {"num_labels": 5}, {}),
        "question-answering": ("question-answering", {}, {}),
    },
}


def make(family_name: str, case: Case, path: Path) -> None:
    head, changes, options = case
    family = get_family(family_name)
    names = family.heads()[head].architectures  # including former class names
    kinds = [getattr(transformers, name) for name in names if hasattr(transformers, name)]
    wanted = changes.get("model_type", kinds[0].config_class.model_type)
    kind = next(kind for kind in kinds if kind.config_class.model_type == wanted)
    shape = SHAPES.get(family_name, SMALL) | {k: v for k, v in changes.items() if k != "model_type"}
    torch.manual_seed(0)
    model = kind(kind.config_class(**shape, attn_implementation="eager"), **options)
    if changes.get("tie_word_embeddings") is False:  # some classes tie new models regardless
        untie(model)
    let_norms_be_exact(model)
    constants = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    randomize_weights(model, seed=len(path.name))
    model.load_state_dict(constants, strict=False)
    weights, hub_config = published(model)
    ours = family.from_hub(hub_config).config
    spec = family.onnx(ours, head)
    lengths = (10, 10) if family_name in ALIKE else (10, 4, 1)
    inputs = random_inputs(spec, ours, lengths)
    let_positions_be_exact(model)
    let_parameters_be_exact(model)
    # The norms of T5 compute in float32 here and there.
    exact = contextlib.nullcontext() if family_name == "t5" else keep_float64()
    with torch.no_grad(), exact:
        computed = model.eval()(**inputs, **ends(model, inputs))
    # without a pooler, the pooled output is missing
    wanted_outputs = [name for name in spec.outputs if not options or name in computed]
    outputs = named_outputs(computed, wanted_outputs)
    golden = Golden(head, hub_config, *map(arrays, (weights, inputs, outputs)))
    golden.write(path, f"transformers {transformers.__version__}, torch {torch.__version__}")
    path.chmod(0o644)


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def ends(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the last positions of texts for a class with the input ``mc_token_ids``."""
    if "mc_token_ids" not in inspect.signature(model.forward).parameters:
        return {}
    return {"mc_token_ids": inputs["attention_mask"].sum(-1) - 1}


def untie(model: Any) -> None:
    """Replace output embeddings, if there are any, by a separate copy."""
    if (table := model.get_output_embeddings()) is not None:
        table.weight = torch.nn.Parameter(table.weight.detach().clone())


def let_norms_be_exact(model: Any) -> None:
    """Replace norms that always compute in float32 by norms in the model's dtype."""
    for module in list(model.modules()):
        for name, norm in module.named_children():
            if type(norm).__name__ == "DebertaLayerNorm":
                setattr(module, name, torch.nn.LayerNorm(len(norm.weight), norm.variance_epsilon))


def let_positions_be_exact(model: Any) -> None:
    """Convert XLNet's encodings of positions to float64, which it adds to hidden states."""
    encode = getattr(model.base_model, "relative_positional_encoding", None)
    if encode is not None:
        model.base_model.relative_positional_encoding = lambda *args, **options: encode(
            *args, **options
        ).double()


def let_parameters_be_exact(model: Any) -> None:
    """Convert parameters to float64; the frequencies of rotary positions stay in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.double()


def published(model: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return tensors and configuration as the library saves them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = load_file(Path(folder) / "model.safetensors")
        hub_config = json.loads((Path(folder) / "config.json").read_text())
    del hub_config["transformers_version"]
    return weights, hub_config


def main() -> None:
    family, *names = sys.argv[1:]
    folder = Path(__file__).parent / family
    folder.mkdir(exist_ok=True)
    for name in names or CASES[family]:
        make(family, CASES[family][name], folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
