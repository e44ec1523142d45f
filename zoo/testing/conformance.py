"""The conformance checks as a pytest class, for built-in families and third parties' alike.

A plugin's test file is one class::

    from zoo.testing import FamilyTests

    class TestMine(FamilyTests):
        family = Mine()
        golden = Path(__file__).parent / "golden"

It runs every check of ``zoo.conformance.family_checks`` for every head.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.smoke_train import SMOKE_TASKS
from zoo.conformance.tiny_model import NotApplicable
from zoo.errors import UsageError

NO_GOLDEN_FILE = pytest.param(
    None,
    id="none",
    marks=pytest.mark.skip(reason="no golden file; set `golden` to a directory of them"),
)


class FamilyTests(FamilyChecks):
    """The tests of a family. Subclass it in a test file, and set the family.

    Attributes:
        family: the family.
        golden: a directory of golden files; ``None`` skips the test of outputs, visibly.
    """

    golden: ClassVar[Path | None] = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the tests with ``head``, ``size``, ``task`` or ``golden_file``."""
        files = sorted(self.golden.glob("*.safetensors")) if self.golden else []
        values: Mapping[str, list[Any]] = {
            "head": list(self.family.heads()),
            "size": list(self.family.sizes()),
            "task": list(SMOKE_TASKS),
            "golden_file": [pytest.param(path, id=path.stem) for path in files] or [NO_GOLDEN_FILE],
        }
        for name in values:  # in a fixed order: parallel runs compare what they collected
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values[name])

    def test_imports(self) -> None:
        """Check that the declaration is quick to import, without torch and other plugins."""
        self.check_imports()

    def test_declarations(self) -> None:
        """Check the names, the size ``tiny``, the head ``none`` and the type of configurations."""
        self.check_declarations()

    def test_config_round_trip(self, size: str) -> None:
        """Check that a configuration comes back equal from the Hub's keys, as JSON."""
        self.check_config_round_trip(size)

    def test_invalid_sizes(self) -> None:
        """Check that 0 and -1 in a number of the configuration are refused by name, or run."""
        self.check_invalid_sizes()

    def test_rules_cover_parameters(self, size: str, head: str) -> None:
        """Check that the rules fill exactly the tensors of the model, with their shapes."""
        self.check_rules_cover_parameters(size, head)

    def test_published_tensors(self, head: str) -> None:
        """Check that the rules account for all tensors of the reference library's own model."""
        try:
            self.check_published_tensors(head)
        except UsageError as error:
            pytest.skip(f"no reference: {error}")

    def test_constants(self, head: str) -> None:
        """Check that the constants of the rules are finite, and have the shapes of the rules."""
        self.check_constants(head)

    def test_rules_read_tensors_once(self, head: str) -> None:
        """Check that no Hub tensor is read twice, or both read and ignored."""
        self.check_rules_read_tensors_once(head)

    def test_exported_names_are_read(self, head: str) -> None:
        """Check that the tensors of the Hub's layout are matched, under any wrapper's prefix."""
        self.check_exported_names_are_read(head)

    def test_tensor_round_trip(self, head: str) -> None:
        """Check that every tensor comes back from the Hub's layout bit for bit."""
        self.check_tensor_round_trip(head)

    def test_state_dict_round_trip(self, head: str, tmp_path: Path) -> None:
        """Check that a model computes the same after its state dict was stored and loaded."""
        self.check_state_dict_round_trip(head, tmp_path)

    def test_golden_file(self, golden_file: Path) -> None:
        """Check that the outputs are those of a golden file, to 1e-9 in float64."""
        self.check_golden_file(golden_file)

    def test_output_shapes(self, head: str) -> None:
        """Check that names, order and shapes of the outputs are those of the ONNX declaration."""
        self.check_output_shapes(head)

    def test_cached_decoding(self, head: str) -> None:
        """Check that tokens after a cache get the logits that they have in one pass."""
        self.check_cached_decoding(head)

    def test_generation(self, head: str) -> None:
        """Check that padded prompts, in rows that are reordered, continue as each does alone."""
        self.check_generation(head)

    def test_padding_changes_nothing(self, head: str) -> None:
        """Check that a row has the same outputs alone and padded in a batch."""
        self.check_padding(head)

    def test_packed_rows(self, head: str) -> None:
        """Check that documents of a packed row have the hidden states of rows of their own."""
        try:
            self.check_packed_rows(head)
        except NotApplicable as error:
            pytest.skip(str(error))

    def test_longest_input(self, head: str) -> None:
        """Check that an input of the largest declared length runs."""
        self.check_longest_input(head)

    def test_default_inputs(self, head: str) -> None:
        """Check that no mask equals a mask of 1, and no token types those of 0."""
        self.check_default_inputs(head)

    def test_row_of_padding(self, head: str) -> None:
        """Check that a row that is all padding has finite outputs."""
        self.check_row_of_padding(head)

    def test_dropout(self, head: str) -> None:
        """Check that evaluation is deterministic, and that training drops out if it is set."""
        self.check_dropout(head)

    def test_dropout_rates(self, head: str) -> None:
        """Check that dropout adds as much noise as in transformers, or drops no value twice."""
        try:
            self.check_dropout_rates(head)
        except NotApplicable as error:
            pytest.skip(str(error))

    def test_decoder_start(self, head: str) -> None:
        """Check that a decoder starts with the token of the configuration, as the reference."""
        self.check_decoder_start(head)

    def test_unequal_sizes(self, head: str) -> None:
        """Check that a decoder may have other sizes than its encoder, or that they are refused."""
        self.check_unequal_sizes(head)

    def test_bfloat16(self, head: str) -> None:
        """Check that the model runs in bfloat16, with outputs in bfloat16."""
        self.check_bfloat16(head)

    def test_gradients_reach_every_parameter(self, head: str) -> None:
        """Check that every parameter has a gradient that is not zero."""
        self.check_gradients(head)

    def test_loss_decreases(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that the loss of a short run by the recipe of ``tiny`` is finite and decreases."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.check_loss_decreases(tmp_path / "run")
        except NotApplicable as error:
            pytest.skip(str(error))

    def test_label_leaks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that no prediction of a pretraining objective depends on its own label."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.check_label_leaks()
        except NotApplicable as error:
            pytest.skip(str(error))

    def test_export(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that a pretrained model is exported to ONNX graphs with the outputs of torch."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.check_export(tmp_path)
        except NotApplicable as error:
            pytest.skip(str(error))

    def test_fine_tuning(self, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that a model with random weights learns a tiny task."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.check_fine_tuning(tmp_path / "run", task)
        except UsageError as error:
            pytest.skip(f"no fine-tuning: {error}")

    def test_resume(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that a short fine-tuning run that is resumed ends as one that was not."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.check_resume(tmp_path / "run")
        except UsageError as error:
            pytest.skip(f"no fine-tuning: {error}")

    def test_initialization(self, head: str) -> None:
        """Check that initial weights are finite and a function of the seed."""
        self.check_initialization(head)


class ReferenceTests(FamilyTests):
    """The tests of a family with a reference: ``FamilyTests``, and the outputs of transformers.

    They are skipped where transformers has no class of the name that the family gives.

    Attributes:
        settings: changes of the configuration; outputs are compared with each.
        row_lengths: number of tokens of the rows that are compared, long enough for every branch
            of the formulas; ``None`` for three different ones up to 48.
    """

    settings: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    row_lengths: ClassVar[Sequence[int] | None] = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the tests with ``changes``, too."""
        super().pytest_generate_tests(metafunc)
        if "changes" in metafunc.fixturenames:
            metafunc.parametrize("changes", self.settings, ids=str)

    def test_outputs_equal_the_reference(self, head: str, changes: Mapping[str, Any]) -> None:
        """Check that outputs are those of transformers: to 1e-9 in float64, 1e-5 in float32."""
        try:
            self.check_reference_outputs(head, changes, self.row_lengths)
        except UsageError as error:
            pytest.skip(f"no reference: {error}")

    def test_initialization_equals_the_reference(self, head: str) -> None:
        """Check that new weights are as large as those of transformers, and constants equal."""
        try:
            self.check_reference_initialization(head)
        except UsageError as error:
            pytest.skip(f"no reference: {error}")

    def test_tokenizer_equals_the_reference(self, tmp_path: Path) -> None:
        """Check that ids and types of texts and pairs are those of transformers."""
        try:
            self.check_reference_tokenizer(tmp_path)
        except UsageError as error:
            pytest.skip(f"no reference: {error}")

    def test_reference_defaults(self) -> None:
        """Check that no key of transformers is unknown, and that defaults are its defaults."""
        try:
            self.check_reference_defaults()
        except UsageError as error:
            pytest.skip(f"no reference: {error}")
