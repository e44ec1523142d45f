"""(IA)^3 (Liu et al. 2022, arXiv:2205.05638)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.targets import list_names, matches
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel


class IA3(AdapterMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learned factors of keys, values and inner activations."""

    name: ClassVar[str] = "ia3"
    # section 3.3 and appendix: Adafactor there
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"learning_rate": 3e-3, "layerwise_lr_decay": 1.0},
        "warmup_ratio": 0.06,
    }

    # linear maps by the Hub's names, or the last parts of them; ``None`` for the family's default
    target_modules: tuple[str, ...] | str | None = None
    # those of them whose inputs are scaled, and not their outputs; ``None`` for the family's
    # default, or for none if there are ``target_modules``
    feedforward_modules: tuple[str, ...] | None = None

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        defaults = adaptable.targets
        targets = adaptable.select(self.target_modules, defaults.rescaled)
        inputs = self.feedforward_modules
        if inputs is None:
            inputs = () if self.target_modules is not None else defaults.rescaled_inputs
        for name in inputs:
            if self.feedforward_modules is not None and name not in targets:
                raise UsageError(
                    f"adapter.feedforward_modules has {name!r}, which adapter.target_modules lacks",
                    "add it there",
                )
        inputs = tuple(name for name in inputs if name in targets)
        return msgspec.structs.replace(self, target_modules=targets, feedforward_modules=inputs)

    @override
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        from zoo.nn.adapters import IA3Adapter, attach_adapter

        method = self.resolved(adaptable)
        for site in adaptable.find_sites(list_names(method.target_modules)):
            input_names = []
            for part in site.parts.values():
                if any(matches(part.name, name) for name in method.feedforward_modules or ()):
                    input_names.append(part.name)
            if input_names and len(site.entry.sources) > 1:
                raise UsageError(
                    f"{input_names[0]} is one product with {len(site.entry.sources) - 1} more "
                    "here, and its inputs cannot be scaled",
                    "leave it out of adapter.feedforward_modules",
                )
            size, width = site.entry.shape
            layer = IA3Adapter(site.rows, size, width, scales_input=bool(input_names))
            attach_adapter(model.get_submodule(site.module), layer)
