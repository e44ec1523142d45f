"""Settings under the names that other programs and papers give them."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from zoo.errors import did_you_mean

# Setting -> the setting that sets the same thing in runs on text.
ALTERNATIVES = {
    "num_train_epochs": "max_steps",
    "batch_size": "global_batch_tokens",
    "max_seq_len": "seq_len",
}
# Name elsewhere, without separators -> names of settings. The first that a struct has is meant.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "rate": ("learning_rate",),
    "wd": ("weight_decay",),
    "clip": ("max_grad_norm",),
    "gradclip": ("max_grad_norm",),
    "gradientclipping": ("max_grad_norm",),
    "optim": ("optimizer.name",),
    "batch": ("batch_size",),
    "bs": ("batch_size",),
    "batchsize": ("batch_size",),
    "trainbatchsize": ("batch_size",),
    "perdevicetrainbatchsize": ("batch_size",),
    "gradientaccumulationsteps": ("micro_batch_size", "micro_batch_tokens"),
    "epoch": ("num_train_epochs",),
    "epochs": ("num_train_epochs",),
    "numepochs": ("num_train_epochs",),
    "numtrainepochs": ("num_train_epochs",),
    "steps": ("max_steps",),
    "numsteps": ("max_steps",),
    "trainsteps": ("max_steps",),
    "warmup": ("warmup_steps", "warmup_ratio"),
    "scheduler": ("lr_scheduler.name",),
    "schedule": ("lr_scheduler.name",),
    "lrschedulertype": ("lr_scheduler.name",),
    "maxlen": ("max_seq_len",),
    "maxlength": ("max_seq_len",),
    "maxseqlength": ("max_seq_len",),
    "length": ("max_seq_len",),
    "sequencelength": ("max_seq_len",),
    "fp16": ("precision",),
    "bf16": ("precision",),
    "evalevery": ("eval_steps",),
    "logevery": ("logging_steps",),
    "saveevery": ("save_steps",),
    "dropout": ("config.dropout",),
    "ema": ("ema_decay",),
    "patience": ("early_stopping_patience",),
    "freeze": ("freeze_layers",),
}


def synonyms(name: str) -> tuple[str, ...]:
    """Return the settings that a name may mean, with the name itself, in words like a setting's."""
    words = name.lower().replace("-", "_")
    return words, *SYNONYMS.get(words.replace("_", ""), ())


def suggest_setting(name: str, struct_type: Any, path: str, root: Any) -> str:
    """Return a remedy that names settings like one that does not exist; empty if none is."""
    struct_paths = [f"{path}{setting}" for setting in setting_paths(struct_type)]
    all_paths = [*setting_paths(root), *ALTERNATIVES]
    for paths in (struct_paths, all_paths):
        for synonym in synonyms(name):
            table, _, _ = synonym.partition(".")
            if table in paths:  # A field of a table without fixed keys.
                return f"did you mean {synonym}?"
            for setting in paths:
                if setting.rpartition(".")[2] == synonym:
                    return f"did you mean {setting}?"
    names = [field.name for field in msgspec.structs.fields(struct_type)]
    if not path:
        names.extend(ALTERNATIVES)
    return did_you_mean(name, names)


def setting_paths(struct_type: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the settings of a struct, at any depth; of optional tables last."""
    fields = msgspec.structs.fields(struct_type)
    for field in sorted(fields, key=lambda field: not isinstance(field.type, type)):
        yield f"{path}{field.name}"
        for inner in _structs(field.type):
            yield from setting_paths(inner, f"{path}{field.name}.")


def field_types(struct_type: Any, path: str) -> Iterator[Any]:
    """Yield the types of the settings at a path; none if no struct has it."""
    name, _, inner_path = path.partition(".")
    for field in msgspec.structs.fields(struct_type):
        if field.name != name:
            continue
        if not inner_path:
            yield field.type
            continue
        for inner_struct in _structs(field.type):
            yield from field_types(inner_struct, inner_path)


def _structs(field_type: Any) -> Iterator[Any]:
    if isinstance(field_type, type) and issubclass(field_type, msgspec.Struct):
        yield field_type
    elif get_origin(field_type) in (Union, UnionType):
        for inner in get_args(field_type):
            yield from _structs(inner)
