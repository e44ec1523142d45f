"""Checks of encoder-decoders: the first input of the decoder, and sizes that differ."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from msgspec.structs import asdict, replace

from zoo.conformance.generation_checks import TARGET, GenerationChecks
from zoo.conformance.hf_reference import reference_class, reference_start
from zoo.conformance.tiny_model import require, require_finite
from zoo.conformance.weight_checks import WeightChecks
from zoo.conversion.model_tensors import differing_tensors
from zoo.errors import UsageError, ZooError
from zoo.families.random_inputs import random_inputs
from zoo.nn.layers.skip_init import SkipInit

START = "decoder_start_token_id"
TRIED = 7  # a start token that is neither padding nor end, nor the default of most families


class EncoderDecoderChecks(WeightChecks, GenerationChecks):
    """Checks of the heads with a decoder after an encoder."""

    def check_decoder_start(self, head: str) -> None:
        """Check that the decoder starts with the configured token, as the reference does."""
        # Training and scoring read ``decoder_start_token_id`` of the configuration; generation
        # calls ``decoder_input_ids`` of the model. Both are compared, with a token that is not the
        # default, with the first input of the reference's decoder in training.
        if TARGET not in self.family.onnx(self.config, head).inputs:
            return
        has_field = START in asdict(self.config)
        config = replace(self.config, **{START: TRIED}) if has_field else self.config
        declared = getattr(config, START, None)
        require(declared is not None, f"the configuration has no {START}")
        with SkipInit():
            model: Any = self.family.model(config, head)
        if hasattr(model, "decoder_input_ids"):
            start = model.decoder_input_ids(torch.full((2, 5), TRIED + 1))
            message = f"decoder_input_ids begins with {start.tolist()}, and {START} is {declared}"
            require(start.tolist() == [[declared]] * 2, message)
        if not self._reference_is_installed(head):
            return
        if (expected := reference_start(self.family, config, head)) is not None:
            message = (
                f"the decoder starts with {declared}, and the reference's decoder with {expected}"
            )
            require(declared == expected, message)
        # of a ``config.json`` without a start token
        hub = {k: v for k, v in self.family.to_hub(self.config).items() if k != START}
        config_class = reference_class(self.family, self.config, head).config_class
        expected = getattr(config_class(**hub), START, None)
        if expected is not None and expected >= config.vocab_size:
            return  # It belongs to the vocabulary of the published models.
        default = getattr(self.family.from_hub(hub).config, START, None)
        message = f"{START} is {default} by default, and {expected} in the reference"
        require(expected is None or default == expected, message)

    def check_unequal_sizes(self, head: str) -> None:
        """Check that a decoder may differ in size from its encoder, or that this is refused."""
        # Sizes are the numbers of ``config.json`` that encoder and decoder have separately, such as
        # ``encoder_layers`` and ``decoder_layers``. With different ones, the rules must fill the
        # model, its outputs equal the reference's, and a cache works.
        if TARGET not in self.family.onnx(self.config, head).inputs:
            return
        config = self._unequal_config(head)
        if config is None:
            return
        sizes = ", ".join(
            f"{k}={v}" for k, v in asdict(config).items() if v != getattr(self.config, k)
        )
        differing = differing_tensors(self.family, config, head)
        require(
            not differing, f"with {sizes}, rules and model differ in {', '.join(differing[:6])}"
        )
        if self._reference_is_installed(head):
            self.check_reference_outputs(head, asdict(config), None)
        spec = self.family.onnx(config, head)
        model = self.family.model(config, head).double().eval()
        inputs = random_inputs(spec, config, (7, 3, 1))
        require_finite(self.run(model, inputs), f"with {sizes}")
        self.require_equal_with_cache(model, spec, inputs)

    def _unequal_config(self, head: str) -> Any:
        """Return the configuration with other sizes of the decoder; ``None`` if all are refused."""
        hub = self.family.to_hub(self.config)
        known = dict(hub)
        if self._reference_is_installed(head):
            known = reference_class(self.family, self.config, head).config_class(**hub).to_dict()
        changes: dict[str, int] = {}
        for key, value in _decoder_sizes(known):
            tried = [value + 1] if "layers" in key else [2 * value, value // 2]
            for number in filter(None, tried):
                try:
                    config = self.family.from_hub({**hub, **changes, key: number}).config
                except ZooError:
                    continue  # refused, which is fine
                back = self.family.to_hub(config).get(key)
                message = f"{key} {number} is read as {back}, the size of the encoder"
                require(back == number, message)
                changes[key] = number
                break
        return self.family.from_hub({**hub, **changes}).config if changes else None

    def _reference_is_installed(self, head: str) -> bool:
        try:
            self._require_reference(head)
            reference_class(self.family, self.config, head)
        except UsageError:
            return False
        return True


def _decoder_sizes(hub: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the sizes that encoder and decoder have separately: key of the decoder, value."""
    for key in hub:
        for name in (
            key.replace("decoder", "encoder"),
            key.replace("decoder_", ""),
            key.replace("decoder", "hidden"),  # num_decoder_layers next to num_hidden_layers
        ):
            value = hub.get(name)
            if name != key and type(value) is int and not key.endswith("_id") and value > 0:
                yield key, value
                break
