"""The conformance checks that every family passes, built-in or a third party's."""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from zoo.conformance.declaration import check_declaration
from zoo.conformance.encoder_decoder_checks import EncoderDecoderChecks
from zoo.conformance.golden import Golden
from zoo.conformance.objective_checks import ObjectiveChecks
from zoo.conformance.packing_checks import PackingChecks
from zoo.conformance.smoke_train import SMOKE_TASKS, resume_finetune, smoke_finetune, smoke_train
from zoo.conformance.tiny_model import (
    LENGTHS,
    TOLERANCE,
    NotApplicable,
    largest_difference,
    require,
    require_finite,
)
from zoo.conformance.tokenizer_checks import TokenizerChecks
from zoo.conformance.training_checks import TrainingChecks
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.families.random_inputs import CHOICES, axis_lengths, random_inputs
from zoo.inference.validate_inputs import NEUTRAL
from zoo.io.json import dump_json
from zoo.plugins.tasks import training_task

LONGEST_TRIED = 256  # tokens of the longest input of a model without a limit


class FamilyChecks(
    EncoderDecoderChecks, ObjectiveChecks, PackingChecks, TokenizerChecks, TrainingChecks
):
    """Checks of a family's declarations, weights, outputs and training."""

    # Each check is a method that raises ``VerificationError``. ``zoo.testing.conformance`` runs
    # them all as pytest tests. They run on the family's ``tiny`` size, without the reference
    # library.

    # Declarations

    def check_imports(self) -> None:
        """Check that the declaration is quick to import, without torch and other plugins."""
        check_declaration(type(self.family).__module__)

    def check_declarations(self) -> None:
        """Check the names, the size ``tiny``, the head ``none`` and the type of configurations."""
        family = self.family
        for name in ("name", "model_types"):
            require(getattr(family, name), f"the family declares no {name}")
        declares_checkpoint = hasattr(family, "default_checkpoint")
        require(declares_checkpoint, "the family declares no default_checkpoint")
        require("tiny" in family.sizes(), "there is no size tiny, which tests and demos use")
        require("none" in family.heads(), "there is no head none, the bare backbone")
        for size, config in family.sizes().items():
            require(
                type(config) is family.config_type, f"{size} is not a {family.config_type.__name__}"
            )

    def check_config_round_trip(self, size: str) -> None:
        """Check that a configuration comes back equal from the Hub's keys, as JSON."""
        config: Config = self.family.sizes()[size]
        hub = json.loads(dump_json(self.family.to_hub(config)))
        translated = self.family.from_hub(hub)
        require(translated.config == config, f"{config} comes back as {translated.config}")
        require(not translated.unknown, f"keys are written and not read: {translated.unknown}")

    def check_invalid_sizes(self) -> None:
        """Check that 0 and -1 in a number of the configuration are refused by name, or run."""
        for field in msgspec.structs.fields(self.config):
            for value in (0, -1):
                try:
                    msgspec.convert(value, field.type)
                except msgspec.ValidationError:
                    continue  # not a number
                try:
                    config = replace(self.config, **{field.name: value})
                except ValueError as error:
                    require(field.name in str(error), f"the error does not name {field.name}")
                    continue
                inputs = random_inputs(self.family.onnx(config, "none"), config, LENGTHS)
                outputs = self.run(self.family.model(config, "none").eval(), inputs)
                require_finite(outputs, f"with {field.name} {value}")

    # Outputs

    def check_golden_file(self, path: Path) -> None:
        """Check that the outputs equal a golden file's, to 1e-9 in float64."""
        golden = Golden.read(path)
        config, state_dict = golden.convert(self.family)
        model = self.family.model(config, golden.head).double().eval()
        model.load_state_dict({name: torch.from_numpy(a) for name, a in state_dict.items()})
        inputs = {name: torch.from_numpy(array) for name, array in golden.inputs.items()}
        outputs = self.run(model, inputs)
        require(outputs.keys() == golden.outputs.keys(), f"the outputs are {sorted(outputs)}")
        for name, expected in golden.outputs.items():
            difference = np.abs(outputs[name].numpy() - expected).max()
            require(difference <= 1e-9, f"{name} differs by {difference:.1e}")

    def check_output_shapes(self, head: str) -> None:
        """Check that names, order and shapes of the outputs match the ONNX declaration."""
        spec = self.family.onnx(self.config, head)
        model = self.model(head)
        inputs = self.inputs(head)
        missing = set(spec.inputs) - set(inspect.signature(model.forward).parameters)
        require(not missing, f"forward has no arguments {sorted(missing)}")
        longest = {axis: max(along) for axis, along in axis_lengths(spec, LENGTHS).items()}
        sizes = {"batch": len(LENGTHS), "choices": CHOICES, **longest}
        outputs = self.run(model, inputs)
        require(list(outputs) == list(spec.outputs), f"the outputs are {list(outputs)}")
        undeclared = set(outputs) - set(self.family.heads()[head].outputs)
        require(not undeclared, f"the head declares no {sorted(undeclared)}")
        for name, axes in spec.outputs.items():
            shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
            require(tuple(outputs[name].shape) == shape, f"{name} is not {shape}")

    def check_padding(self, head: str) -> None:
        """Check that a row has the same outputs by itself and padded in a batch."""
        spec = self.family.onnx(self.config, head)
        model = self.model(head)
        batch = self.run(model, self.inputs(head, tokens=12))
        lengths = axis_lengths(spec, LENGTHS)
        for row, length in enumerate(LENGTHS):
            # The part of each axis that is not padding.
            slices = {axis: slice(axis_length[row]) for axis, axis_length in lengths.items()}
            unpadded = {}
            for name, tensor in self.inputs(head).items():
                unpadded[name] = cut_padding(tensor[row : row + 1], spec.inputs[name], slices)
            for name, output in self.run(model, unpadded).items():
                real_output = cut_padding(batch[name][row], spec.outputs[name][1:], slices)
                difference = largest_difference(real_output, output[0])
                message = f"{name} of a row of {length} tokens differs by {difference:.1e}"
                require(difference <= TOLERANCE, message)

    def check_longest_input(self, head: str) -> None:
        """Check that an input of the largest declared length runs."""
        spec = self.family.onnx(self.config, head)
        longest = spec.limits.get("tokens", LONGEST_TRIED)
        inputs = random_inputs(spec, self.config, (longest, 1))
        require_finite(self.run(self.model(head), inputs), f"for {longest} tokens")

    def check_default_inputs(self, head: str) -> None:
        """Check that omitted inputs equal explicit defaults: a mask of 1, token types of 0."""
        inputs = self.inputs(head)
        explicit = {
            name: torch.full_like(tensor, NEUTRAL[name]) if name in NEUTRAL else tensor
            for name, tensor in inputs.items()
        }
        implicit = {name: tensor for name, tensor in inputs.items() if name not in NEUTRAL}
        model = self.model(head)
        first = self.run(model, explicit)
        second = self.run(model, implicit)
        for name, tensor in first.items():
            difference = largest_difference(tensor, second[name])
            require(difference <= TOLERANCE, f"{name} without the inputs differs: {difference:.1e}")

    def check_row_of_padding(self, head: str) -> None:
        """Check that a row of padding only has finite outputs."""
        inputs = self.inputs(head)
        inputs["attention_mask"][1] = 0
        require_finite(self.run(self.model(head), inputs), "for a row of padding")

    def check_dropout(self, head: str) -> None:
        """Check that evaluation is deterministic, and that training applies dropout if set."""
        # ``dropout`` has to change the outputs of every head; other rates, such as
        # ``classifier_dropout``, may.
        model = self.model(head)
        inputs = self.inputs(head)
        first = self.run(model, inputs)
        second = self.run(model, inputs)
        in_training = self.run(model.train(), inputs)
        probabilities = {
            name: value or 0.0
            for name, value in msgspec.structs.asdict(self.config).items()
            if name.endswith("dropout")
        }
        every_head = probabilities.get("dropout", 0.0) > 0
        possible = max(probabilities.values(), default=0.0) > 0
        for name, tensor in first.items():
            require(
                torch.equal(tensor, second[name]),
                f"{name} changes from run to run: is dropout applied in evaluation?",
            )
            if not tensor.is_floating_point():
                continue  # indices need not change
            # Training may compute only the tokens that are read, which rounds differently.
            changed = largest_difference(tensor, in_training[name]) > TOLERANCE
            fields = ", ".join(f"{field} {value:g}" for field, value in probabilities.items())
            difference = "differs from" if changed else "equals"
            message = f"{name} in training {difference} that in evaluation, with {fields or 'none'}"
            require(possible if changed else not every_head, message)

    def check_bfloat16(self, head: str) -> None:
        """Check that the model runs in bfloat16, with outputs in bfloat16."""
        outputs = self.run(self.model(head, torch.bfloat16), self.inputs(head))
        require_finite(outputs, "in bfloat16")
        for name, tensor in outputs.items():
            expected = torch.bfloat16 if tensor.is_floating_point() else torch.int64
            require(tensor.dtype is expected, f"{name} is {tensor.dtype}")

    # Training

    def check_gradients(self, head: str) -> None:
        """Check that every parameter gets a gradient that is not zero."""
        # A scalar's may be zero: added to all logits of a softmax, it has no effect. What is not
        # trained has to be a ``Constant`` of the rules, not a parameter.
        model = self.model(head, torch.float32)
        inputs = self.inputs(head)
        if (mask := getattr(self.config, "mask_token_id", None)) is not None:
            inputs["input_ids"][..., 0] = mask  # some models embed it differently
        outputs = model(**inputs).values()
        # squares, because a plain sum over a normalized axis has no gradient
        sum(((tensor - 1) ** 2).sum() for tensor in outputs).backward()
        unused_parameters = self.family.unused_parameters(self.config, head)
        for name, parameter in model.named_parameters():
            if name in unused_parameters:
                continue
            require(
                parameter.requires_grad,
                f"{name} is frozen; if it follows from the configuration, declare a `Constant` and "
                "use a buffer with persistent=False",
            )
            gradient = parameter.grad
            used = gradient is not None and (gradient.numel() == 1 or gradient.any())
            require(used, f"{name} has no gradient")

    def check_loss_decreases(self, directory: Path) -> None:
        """Check that the loss of a short run by the recipe of ``tiny`` is finite and decreases."""
        self._require_recipe()
        losses = smoke_train(self.family, self.config, directory)
        require(np.isfinite(losses).all(), f"the losses are not finite: {losses}")
        require(np.mean(losses[-5:]) < np.mean(losses[:5]), f"the loss does not decrease: {losses}")

    def check_export(self, directory: Path) -> None:
        """Check that a pretrained model is exported to ONNX graphs with the outputs of torch."""
        from zoo.checkpoint import load_checkpoint
        from zoo.exporting.gate import export_model
        from zoo.exporting.targets import ONNX, find_target
        from zoo.exporting.targets.base import ExportSettings

        self._require_recipe()
        smoke_train(self.family, self.config, directory / "run")
        model = load_checkpoint(directory / "run" / "model")
        export_model(find_target(ONNX), model, directory / "graph", ExportSettings())

    def check_fine_tuning(self, directory: Path, task: str) -> None:
        """Check that a model of the size ``tiny`` learns to tell two kinds of words apart."""
        head = training_task(task).head
        if head not in self.family.heads():
            raise UsageError(f"{self.family.name} has no head {head}")
        losses = smoke_finetune(self.family, directory, task)
        require(np.isfinite(losses).all(), f"the losses are not finite: {losses}")
        decrease = np.mean(losses[:5]) - np.mean(losses[-5:])
        require(decrease > 0.1, f"the loss does not decrease: {losses}")

    def check_resume(self, directory: Path) -> None:
        """Check that a resumed fine-tuning run ends bit for bit like an uninterrupted one."""
        tasks = [t for t in SMOKE_TASKS if training_task(t).head in self.family.heads()]
        if not tasks:
            raise NotApplicable(f"{self.family.name} has no head for {', '.join(SMOKE_TASKS)}")
        differ = resume_finetune(self.family, directory, tasks[0])
        require(not differ, f"a resumed run differs in {', '.join(differ)}")

    def check_initialization(self, head: str) -> None:
        """Check that initial weights are finite and a function of the seed."""

        def build(seed: int) -> dict[str, Tensor]:
            torch.manual_seed(seed)
            return self.family.model(self.config, head).state_dict()

        first = build(0)
        same_seed = build(0)
        other_seed = build(1)
        require_finite(first, "at initialization")
        for name, tensor in first.items():
            require(torch.equal(tensor, same_seed[name]), f"{name} differs for one seed")
        changed = any(not torch.equal(tensor, other_seed[name]) for name, tensor in first.items())
        require(changed, "the initial weights do not depend on the seed")


def cut_padding(tensor: Tensor, axes: Sequence[str | int], slices: Mapping[str, slice]) -> Tensor:
    """Return the part of a tensor in the slices of its named axes; other axes are whole."""
    return tensor[tuple(slices.get(str(axis), slice(None)) for axis in axes)]
