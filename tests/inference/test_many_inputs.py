"""Memory of ``zoo run``, which does not grow with the number of inputs."""

from pathlib import Path

import pytest

from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.processes import run_limited
from tests.reporting import record

MEGABYTE = 1 << 20


@pytest.mark.long
def test_fifty_thousand_inputs_take_the_memory_of_a_few(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    peaks = {}
    for count in (4_000, 50_000):
        texts = tmp_path / f"{count}.txt"
        lines = (f"the cat sat on mat {n} and ran away\n" * (1 + n % 3) for n in range(count))
        texts.write_text("".join(line.replace("\n", " ") + "\n" for line in lines))
        ended = run_limited(["zoo", "run", "embed", model, "--input", texts], seconds=900)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("\n") == count
        peaks[count] = ended.peak_bytes // MEGABYTE
    failed = peaks[50_000] > peaks[4_000] + 50
    measured = f"peak {peaks[50_000]} MB, and {peaks[4_000]} MB for 4,000"
    record("many-inputs", cases=50_000, failures=int(failed), measured=measured)
    assert not failed, measured


@pytest.mark.long
def test_long_texts_are_read_in_small_windows(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    texts = tmp_path / "texts.txt"
    texts.write_text(("word " * 200_000 + "\n") * 20)  # 20 texts of 1 MB
    ended = run_limited(["zoo", "run", "embed", model, "--input", texts], seconds=900)
    assert ended.returncode == 0, ended.stderr
    assert ended.peak_bytes < 2_500 * MEGABYTE
    texts.write_text("word " * 20_000_000)
    ended = run_limited(["zoo", "run", "embed", model, "--input", texts], seconds=60)
    assert ended.returncode == 2
    assert "texts.txt:1: the line has over" in ended.stderr.splitlines()[-1]
    assert ended.peak_bytes < 700 * MEGABYTE
