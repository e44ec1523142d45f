"""Checks of objectives in a run: they pass at all row lengths, and detect wrong counts."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.training.runs import options, small
from zoo.cli.training.check_accumulation import command as accumulation
from zoo.cli.training.check_resume import command as resume
from zoo.errors import VerificationError
from zoo.objectives.sentence_pairs import NextSentence
from zoo.training import checks
from zoo.training.checks import check_grad_accumulation

pytestmark = pytest.mark.usefixtures("shared_home")
SHORT: dict[str, Any] = {
    "seq_len_warmup": {"seq_len": 32, "fraction": 0.5, "keep": "rows"},
    "micro_batch_tokens": 64,
}


def test_a_batch_in_parts_is_the_batch_also_of_shorter_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Micro-batches of the run are among the parts: 64 tokens are 2 short rows, or 1 long."""
    seen: set[tuple[int, int]] = set()
    collate = NextSentence.collate

    def watched(self: NextSentence, rows: Any) -> Any:
        seen.add((self.length, len(rows)))
        return collate(self, rows)

    monkeypatch.setattr(NextSentence, "collate", watched)
    check = check_grad_accumulation(small("bert", **SHORT))
    assert (check.rows, list(check.max_differences)) == (4, [1, 2])
    assert max(check.max_differences.values()) < 1e-9
    assert seen == {(length, rows) for length in (32, 64) for rows in (1, 2, 4)}


@pytest.mark.long
def test_counts_that_are_wrong_for_short_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    collate = NextSentence.collate

    def wrong(self: NextSentence, rows: Any) -> Any:
        batch = collate(self, rows)
        if self.length == 32:
            batch.counts["masked-lm"] += 1
        return batch

    monkeypatch.setattr(NextSentence, "collate", wrong)
    with pytest.raises(VerificationError, match="changes by"):
        check_grad_accumulation(small("bert", **SHORT))
    check_grad_accumulation(small("bert"))


@pytest.mark.long
def test_commands_print_the_results(tmp_path: Path) -> None:
    result = CliRunner().invoke(accumulation, ["gpt", *options()])
    assert result.exit_code == 0 and "4 rows in parts of 2: gradients differ by" in result.output
    arguments = ["gpt", "--device", "cpu", "--max-steps", "4", *options(max_steps=4)]
    result = CliRunner().invoke(resume, [*arguments, "--kills", "1"])
    assert result.exit_code == 0, result.output
    assert "exact: 4 steps, killed after" in result.output


def test_gradients_that_are_nan_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons with NaN are false, and ``max`` may return it or not."""
    gradients = checks._gradients

    def broken(*args: Any) -> dict[str, Any]:
        result = gradients(*args)
        name = list(result)[len(result) // 2]
        return {**result, name: result[name] * float("nan")}

    monkeypatch.setattr(checks, "_gradients", broken)
    with pytest.raises(VerificationError, match="changes by inf when the batch is split"):
        check_grad_accumulation(small("bert"))
