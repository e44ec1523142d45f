"""The methods by name, and their settings."""

from collections.abc import Mapping
from typing import Any

import msgspec

from zoo.adapted_models.base import AdapterMethod
from zoo.errors import UsageError, did_you_mean
from zoo.plugins.catalog import Catalog

METHOD = "method"  # The key of the method's name among its settings.
ADAPTERS: Catalog[AdapterMethod] = Catalog(
    "adapters",
    "zoo.adapted_models.base:AdapterMethod",
    {
        "lora": "zoo.adapters.lora:LoRA",
        "dora": "zoo.adapters.lora:DoRA",
        "ia3": "zoo.adapters.ia3:IA3",
        "prompt": "zoo.adapters.prompt:PromptTuning",
        "prefix": "zoo.adapters.prefix:PrefixTuning",
        "houlsby": "zoo.adapters.bottleneck:Houlsby",
        "pfeiffer": "zoo.adapters.bottleneck:Pfeiffer",
        "parallel": "zoo.adapters.bottleneck:Parallel",
    },
)
# Names of settings in peft -> names here.
PEFT_NAMES = {"r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout"}


def parse_adapter(settings: Mapping[str, Any]) -> AdapterMethod:
    """Convert the settings of an adapter, with the name of its method, to its class."""
    values = dict(settings)
    name = values.pop(METHOD, None)
    if not isinstance(name, str):
        raise UsageError(
            "adapter has settings and no method",
            f"--adapter names one of {', '.join(ADAPTERS.names())}",
        )
    method = ADAPTERS.find(name)
    setting_names = [field.encode_name for field in msgspec.structs.fields(method)]
    for key in values:
        if key not in setting_names:
            hint = did_you_mean(key, setting_names)
            if PEFT_NAMES.get(key) in setting_names:
                hint = f"did you mean {PEFT_NAMES[key]}?"
            raise UsageError(
                f"the adapter {name} has no setting {key!r}",
                hint or f"it has {', '.join(setting_names)}",
            )
    try:
        return msgspec.convert(values, method)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the adapter {name}: {error}") from error


def adapter_settings(method: AdapterMethod) -> dict[str, Any]:
    """Return all settings of an adapter, with the name of its method."""
    return {METHOD: method.name, **msgspec.to_builtins(method)}


def with_adapter(requested: dict[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the settings of a run with all settings of its adapter, and the method's defaults."""
    settings = requested.get("adapter")
    if settings is None:
        return requested, {}
    method = parse_adapter(settings)
    return {**requested, "adapter": adapter_settings(method)}, method.defaults


def require_packed_documents(settings: Mapping[str, Any]) -> None:
    """Check that rows of several documents, as in pretraining, can have an adapter."""
    method = parse_adapter(settings)
    if not method.supports_packed_documents:
        raise UsageError(
            f"--adapter {method.name} puts virtual tokens before each text, and a row of "
            "pretraining holds several",
            "choose another --adapter, or `zoo finetune` with this one",
        )
