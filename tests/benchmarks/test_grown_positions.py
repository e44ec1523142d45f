"""The benchmark of grown positions: its windows, masks and loss, what it concludes, and a run."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from benchmarks.grown_positions import (
    CONTROL,
    FREQUENCIES,
    GROWN_ROBERTA,
    MASKS_PER_PASSAGE,
    Result,
    conclude,
    draw_masks,
    frequency_loss,
    main,
    masked_loss,
    plan_windows,
    split_books,
)
from zoo.conformance.hf_reference import reference_model
from zoo.data.cache import SAMPLE
from zoo.families.random_inputs import randomize_weights
from zoo.plugins import get_family

SPECIAL = {"begin": 0, "end": 2, "mask": 99}


def context(token: int, start: int, width: int) -> int:
    """Return the number of tokens on the shorter side of a token in a window; -1 outside of it."""
    return min(token - start, start + width - 1 - token)


@pytest.mark.parametrize("length", [9, 12, 13, 21, 30, 31])
def test_each_token_is_predicted_once_where_it_has_most_context(length: int) -> None:
    width = 12
    windows = plan_windows(length, width)
    width = min(width, length)
    assert windows[0].start == 0
    assert windows[-1].start == length - width
    predicted = list[int]()
    for window in windows:
        for token in range(window.first, window.last):
            contexts = [context(token, other.start, width) for other in windows]
            assert context(token, window.start, width) == max(contexts) >= 0
            predicted.append(token)
    assert predicted == list(range(length))


def test_each_token_is_masked_once() -> None:
    masks = draw_masks(100, passage=1)
    assert len(masks) == MASKS_PER_PASSAGE
    assert {len(positions) for positions in masks} == {14, 15}
    assert sorted(np.concatenate(masks)) == list(range(100))
    again = draw_masks(100, passage=1)
    assert [list(mask) for mask in again] == [list(mask) for mask in masks]
    assert not np.array_equal(masks[0], draw_masks(100, passage=2)[0])


@pytest.mark.parametrize("max_tokens", [14, 64])
def test_loss_is_that_of_transformers(max_tokens: int) -> None:
    family: Any = get_family("roberta")
    config = msgspec.structs.replace(
        family.sizes()["tiny"], vocab_size=100, hidden_size=32, num_heads=2, intermediate_size=64
    )
    model = family.model(config, "masked-lm").eval()
    randomize_weights(model)
    reference: Any = reference_model(family, config, "masked-lm", model.state_dict()).eval()
    rng = np.random.default_rng(0)
    passages = [rng.integers(3, 99, 31) for _ in range(2)]
    losses = []
    for number, passage in enumerate(passages):
        width = min(max_tokens - 2, len(passage))
        starts = [window.start for window in plan_windows(len(passage), width)]
        for positions in draw_masks(len(passage), number):
            masked = passage.copy()
            masked[positions] = SPECIAL["mask"]
            for token in positions:
                start = max(starts, key=lambda start: (context(token, start, width), start))
                inner = masked[start : start + width]
                row = torch.tensor([[SPECIAL["begin"], *inner, SPECIAL["end"]]])
                labels = torch.full_like(row, -100)
                labels[0, token - start + 1] = int(passage[token])
                with torch.no_grad():
                    losses.append(float(reference(input_ids=row, labels=labels).loss))
    assert len(losses) == 62
    loss = masked_loss(model, passages, SPECIAL, max_tokens)
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_loss_of_frequencies_counts_each_token_once_more() -> None:
    loss = frequency_loss(np.array([3, 1, 0]), [np.array([0, 1]), np.array([2])])
    assert loss == pytest.approx(-np.log([4 / 7, 2 / 7, 1 / 7]).mean())


@pytest.mark.parametrize(
    ("grown", "conclusion"),
    [
        (
            [3.0, 3.1, 3.2],
            "longer context helps with all 3 seeds (mean difference from the control -0.4000",
        ),
        (
            [3.6, 3.7, 3.8],
            "the loss is higher with all 3 seeds (mean difference from the control +0.2000",
        ),
        ([3.4, 3.5, 3.7], "a null result, the 3 seeds do not agree in sign"),
        ([3.0], "one seed does not show"),
    ],
)
def test_seeds_have_to_agree(grown: list[float], conclusion: str) -> None:
    controls = [3.4, 3.5, 3.6]
    results = [
        {FREQUENCIES: {"loss": 5.0}, CONTROL: {"loss": control}, GROWN_ROBERTA: {"loss": loss}}
        for loss, control in zip(grown, controls, strict=False)
    ]
    assert conclusion in conclude(GROWN_ROBERTA, results)


def test_models_that_learned_nothing_show_nothing() -> None:
    result: Result = {
        FREQUENCIES: {"loss": 5.0},
        CONTROL: {"loss": 4.95},
        GROWN_ROBERTA: {"loss": 4.9},
    }
    assert "no conclusion" in conclude(GROWN_ROBERTA, [result] * 3)


def test_the_last_books_are_held_out(tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number:02}.txt").touch()
    train, held_out = split_books(tmp_path)
    assert [path.stem for path in held_out] == ["14", "15"]
    assert len(train) == 14
    train, held_out = split_books(tmp_path, most=2)
    assert [path.stem for path in [*train, *held_out]] == ["00", "01"]
    with pytest.raises(SystemExit, match="has 0 files"):
        split_books(tmp_path / "empty")


@pytest.mark.long
def test_a_quick_run_prints_all_models_and_repeats_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    for path in sorted(SAMPLE.glob("*.txt"))[:2]:
        (folder / path.name).write_bytes(path.read_bytes())
    arguments = [str(folder), "--quick", "--seeds", "1", "--threads", "1"]
    arguments += ["--output", str(tmp_path / "runs")]
    main(arguments)
    printed, progress = capsys.readouterr()
    assert "seed 0, original" in progress
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) == 8
    sizes = {row[0].strip(): row[3].strip().replace(",", "") for row in rows[3:]}
    original, grown, trained, longformer, control = map(int, sizes.values())
    assert original == control
    assert grown == trained == original + 384 * 128
    assert longformer == grown + 2 * (3 * 128 * 128 + 3 * 128)
    main(arguments)
    again, progress = capsys.readouterr()
    assert again == printed
    assert not progress
