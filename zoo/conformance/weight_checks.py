"""Checks that the rules of a family's weights fit its models, and the Hub's tensors and outputs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import asdict, replace

from zoo.conformance.causes import other_key_values
from zoo.conformance.comparison import compare_models, compare_with_reference
from zoo.conformance.diagnosis import explain
from zoo.conformance.hf_reference import (
    ReferenceUnavailable,
    build_reference,
    hub_state,
    reference_class,
    reference_constants,
    reference_state,
    reference_tensors,
)
from zoo.conformance.module_trace import ModuleDifference
from zoo.conformance.tiny_model import TinyModel, require
from zoo.conformance.variations import describe_changes, field_changes
from zoo.conversion.model_tensors import (
    differing_tensors,
    repeated_targets,
    ties_message,
    untied_tables,
)
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.families.random_inputs import randomize_weights
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.weights import match_tensors


class WeightChecks(TinyModel):
    """Checks of the weights."""

    def check_rules_cover_parameters(self, size: str, head: str) -> None:
        """Check that the rules fill exactly the tensors of the model, with their shapes."""
        config = self.family.sizes()[size]
        repeated = repeated_targets(self.family, config, head)
        require(not repeated, f"two rules fill {', '.join(repeated[:6])}")
        differing = differing_tensors(self.family, config, head)
        with init_empty_weights():
            buffers = dict(self.family.model(config, head).named_buffers())
        stored = [name for name in differing if name in buffers]
        remedy = (
            "; a buffer that follows from the configuration is a `Constant` of the rules, and has "
            "persistent=False"
        )
        require(
            not differing,
            f"rules and model differ in {', '.join(differing[:6])}{remedy if stored else ''}",
        )

    def check_constants(self, head: str) -> None:
        """Check that the constants of the rules are finite, and have the shapes of the rules."""
        for name, constant in self.family.weights(self.config, head).constant_tensors().items():
            values = constant.values()
            require(values.shape == constant.shape, f"{name} has shape {values.shape}")
            require(values.dtype != np.float64, f"{name} is float64; the model computes in float32")
            require(np.isfinite(values).all(), f"{name} is not finite")
            require(np.array_equal(values, constant.values()), f"{name} changes from call to call")

    def check_published_tensors(self, head: str) -> None:
        """Check that the rules account for all tensors of the reference library's own model."""
        self._require_reference(head)
        weights = self.family.weights(self.config, head)
        report = match_tensors(weights, reference_tensors(self.family, self.config, head))
        report.raise_if_incomplete(f"{self.family.name} with head {head}, as published")
        published = reference_constants(self.family, self.config, head)
        written = {weights.written(name): name for name in published}
        for name, constant in report.constants.items():
            known = written[weights.current(name)]
            difference = np.abs(published[known].numpy() - constant.values()).max()
            message = f"the constant {name} differs by {difference:.1e} from a new model's"
            require(difference <= constant.tolerance, message)

    def check_reference_defaults(self) -> None:
        """Check that the keys of the reference library's configuration are known, and defaults."""
        self._require_reference("none")
        config_class = reference_class(self.family, self.config, "none").config_class
        translated = self.family.from_hub(config_class().to_dict())
        require(not translated.unknown, f"unknown keys: {', '.join(translated.unknown)}")
        default: Any = self.family.config_type
        expected = asdict(translated.config)
        defaults = asdict(default())
        read = asdict(
            self.family.from_hub(config_class(**self.family.to_hub(default())).to_dict()).config
        )
        # ``None`` may stand for the value of another field, as the reference reads it
        defaults |= {name: read[name] for name, value in defaults.items() if value is None}
        differing = [
            f"{name} is {defaults[name]} by default, and {value} in the reference"
            for name, value in expected.items()
            if value != defaults[name]
            and f"reference_defaults {name}" not in self.family.reference_exceptions
        ]
        require(not differing, "; ".join(differing))

    def check_reference_outputs(
        self, head: str, changes: Mapping[str, Any], lengths: Sequence[int] | None
    ) -> None:
        """Check that random weights give the outputs of the reference library's model."""
        # ``zoo plugins check`` also runs it with other values of each field, in float64 only.
        config = replace(self.config, **changes)
        if not self.family.has_reference(config, head):
            raise UsageError(f"no reference has {self.family.name} with head {head}")
        model = self.family.model(config, head).double().eval()
        randomize_weights(model)
        for dtype, accepted in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
            comparison = compare_with_reference(
                self.family, config, head, model.to(dtype), lengths=lengths, tolerance=accepted
            )
            for name, difference in comparison.outputs.items():
                if difference.relative <= accepted:
                    continue
                cause = self._explain(config, head, comparison.module, lengths)
                raise VerificationError(
                    f"{name} differs by {difference.relative:.1e} of its largest magnitude in "
                    f"{dtype}; {comparison.place}{cause}"
                )

    def _explain(
        self,
        config: Any,
        head: str,
        module: ModuleDifference | None,
        lengths: Sequence[int] | None,
    ) -> str:
        """Return the likely cause of a difference, which is the same for all heads."""
        if module is None:
            return explain(self.family, config, head, module, lengths)
        place = (module.module, config)
        if place not in self._causes:
            self._causes[place] = explain(self.family, config, head, module, lengths)
        return self._causes[place]

    @cached_property
    def _causes(self) -> dict[tuple[str, Any], str]:
        """Name of the first module that differs, and configuration -> likely cause."""
        return {}

    def check_reference_keys(self, head: str) -> None:
        """Check that each key that changes the reference's outputs is refused or has its effect."""
        # Each key that is a switch, an epsilon or the name of an activation function is changed in
        # a ``config.json``. The family refuses it, or computes what the reference does.
        self._require_reference(head)
        config_class = reference_class(self.family, self.config, head).config_class
        hub = {**config_class().to_dict(), **self.family.to_hub(self.config)}
        for key, value in hub.items():
            for other_value in other_key_values(key, value):
                changed_hub = {**hub, key: other_value}
                try:
                    config = self.family.from_hub(changed_hub).config
                except ZooError:
                    continue  # it is refused, which is fine
                # A key with the name of a field, such as the padding token, is that field.
                field_value = getattr(config, key, other_value)
                require(
                    field_value == other_value,
                    f"{key} {other_value!r} in config.json is accepted, and read as "
                    f"{field_value!r}",
                )
                if self.family.has_reference(config, head):
                    self._compare_key(head, changed_hub, config, f"{key} {other_value!r}")

    def _compare_key(self, head: str, hub: Mapping[str, Any], config: Any, label: str) -> None:
        """Compare the outputs with those of the reference with a changed ``config.json``."""
        model = self.family.model(config, head).double().eval()
        randomize_weights(model)
        tensors = hub_state(self.family.weights(config, head), model.state_dict())
        try:
            reference = build_reference(self.family, config, head, tensors, hub)
            comparison = compare_models(self.family, config, head, model, reference, tolerance=1e-9)
        except ReferenceUnavailable:
            return  # the reference does not implement the value either
        for name, difference in comparison.outputs.items():
            require(
                difference.relative <= 1e-9,
                f"with {label} in config.json, which is accepted, {name} differs by "
                f"{difference.relative:.1e}; {comparison.place}; read the key, or refuse it",
            )

    def check_ties(self, head: str) -> None:
        """Check that models with ``tie_word_embeddings`` have one table of tokens."""
        for changes in ({}, *self._tie_changes()):
            tables = untied_tables(self.family, replace(self.config, **changes), head)
            require(not tables, ties_message(tables))

    def check_reference_ties(self, head: str) -> None:
        """Check that the rules tie the tensors that the reference's class ties, and no others."""
        self._require_reference(head)
        for changes in ({}, *self._tie_changes()):
            config = replace(self.config, **changes)
            label = f" with {describe_changes(changes)}" if changes else ""
            if self.family.has_reference(config, head):
                self._require_same_ties(config, head, label)

    def _require_same_ties(self, config: Any, head: str, label: str) -> None:
        weights = self.family.weights(config, head)
        groups = _tied_groups(reference_state(self.family, config, head))
        # Each group of the reference fills one parameter.
        model = self.family.model(config, head)
        parameters = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
        targets = {}
        for entry in weights.entries():
            for source in entry.sources:
                targets[weights.written(source)] = entry.target
        for names in groups:
            filled = {targets[name] for name in names if name in targets}
            count = len({parameters.get(target) for target in filled})
            require(
                count < 2,
                f"the reference ties {' and '.join(names)}{label}, and the rules fill "
                f"{' and '.join(sorted(filled))}: declare a `TiedAlias`",
            )
        # Each alias and its owner are in one group of the reference.
        group_numbers = {name: number for number, names in enumerate(groups) for name in names}
        copies = {weights.written(name) for names in weights.copies().values() for name in names}
        for alias, owner in weights.aliases().items():
            alias_name = weights.written(alias)
            owner_name = weights.written(owner)
            is_compared = alias_name in group_numbers and owner_name in group_numbers
            if alias_name in copies or not is_compared:
                continue
            require(
                group_numbers[alias_name] == group_numbers[owner_name],
                f"the rules tie {alias_name} to {owner_name}{label}, and the reference has two "
                "tensors",
            )

    def check_rules_read_tensors_once(self, head: str) -> None:
        """Check that no Hub tensor is read twice, or both read and ignored."""
        weights = self.family.weights(self.config, head)
        sources = [source for mapping in weights.entries() for source in mapping.sources]
        require(len(set(sources)) == len(sources), "two rules read one tensor")
        unread = weights.aliases().keys() | weights.dropped().keys()
        unread |= weights.constant_tensors().keys()
        require(not set(sources) & unread, f"read and left out: {sorted(set(sources) & unread)}")
        owners = set(weights.aliases().values()) - set(sources)
        require(not owners, f"no rule reads what a tie refers to: {sorted(owners)}")

    def check_exported_names_are_read(self, head: str) -> None:
        """Check that the tensors of the Hub's layout are matched, under any wrapper's prefix."""
        weights = self.family.weights(self.config, head)
        hub = {
            weights.written(source): TensorInfo("F32", shape)
            for mapping in weights.entries()
            for source, shape in zip(mapping.sources, mapping.source_shapes, strict=True)
        }
        hub |= {
            weights.written(name): TensorInfo("F32", constant.shape)
            for name, constant in weights.constant_tensors().items()
        }
        for wrapper in ("", "module.", "_orig_mod."):
            report = match_tensors(weights, {wrapper + name: info for name, info in hub.items()})
            report.raise_if_incomplete(f"{self.family.name} with head {head}, names {wrapper}...")

    def check_tensor_round_trip(self, head: str) -> None:
        """Check that every tensor comes back from the Hub's layout bit for bit."""
        random = np.random.default_rng(0)
        for mapping in self.family.weights(self.config, head).entries():
            hub = [random.integers(0, 1 << 16, s, np.uint16) for s in mapping.source_shapes]
            array = mapping.op.from_hub(hub, mapping.shape)
            require(array.shape == mapping.shape, f"{mapping.target} has shape {array.shape}")
            back = mapping.op.to_hub(array)
            equal = len(back) == len(hub) and all(map(np.array_equal, hub, back))
            require(equal, f"{mapping.target} does not come back bit for bit")

    def check_state_dict_round_trip(self, head: str, directory: Path) -> None:
        """Check that a model computes the same after its state dict was stored and loaded."""
        from safetensors.torch import load_file, save_file

        model = self.model(head)
        inputs = self.inputs(head)
        directory.mkdir(parents=True, exist_ok=True)
        save_file(model.state_dict(), directory / "model.safetensors")
        loaded = self.model(head)
        with torch.no_grad():
            for parameter in loaded.parameters():
                parameter.zero_()
        loaded.load_state_dict(load_file(directory / "model.safetensors"))
        outputs = self.run(model, inputs)
        loaded_outputs = self.run(loaded, inputs)
        for name, tensor in outputs.items():
            require(torch.equal(tensor, loaded_outputs[name]), f"{name} differs after loading")

    def _tie_changes(self) -> list[dict[str, Any]]:
        """Return the changes of a configuration of the fields that say what is tied."""
        changes = field_changes(self.family, self.config)
        return [change for change in changes if any("tie" in name for name in change)]


def _tied_groups(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Return the names of tensors by their memory, which tied ones share."""
    groups: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for name, tensor in state.items():
        if tensor.numel():
            groups.setdefault((tensor.data_ptr(), tuple(tensor.shape)), []).append(name)
    return list(groups.values())
