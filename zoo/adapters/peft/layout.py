"""Names of peft's files and tensors."""

PEFT_CONFIG = "adapter_config.json"
PEFT_WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
# Head -> type of the task in peft.
TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
    "none": "FEATURE_EXTRACTION",
}
# Type of the task -> ends of the names of modules that peft always saves with an adapter
SAVED_MODULES = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
# Our name of a tensor -> the end of its name in peft.
ENDINGS = {
    "lora_A": ".lora_A.weight",
    "lora_B": ".lora_B.weight",
    "lora_magnitude_vector": ".lora_magnitude_vector",
    "ia3_l": ".ia3_l",
}
# Our name of a tensor -> number of its axes.
AXES = {"lora_A": 2, "lora_B": 2, "lora_magnitude_vector": 1, "ia3_l": 2}


def is_by_row(part_name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor, by our name, has the rows of the matrix that it changes."""
    if part_name == "ia3_l":
        return shape[1] == 1
    return part_name in ("lora_B", "lora_magnitude_vector")
