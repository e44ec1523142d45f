"""A run of two processes equals that of one."""

from pathlib import Path

import pytest

from tests.families.every import families_with
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_two_processes_equal_one,
    finetune,
    labelled,
    settings,
)
from tests.training.runs import finish_in_two_processes, records
from zoo.plugins import get_family


@pytest.mark.long
@pytest.mark.parametrize("name", families_with("sequence-classification"))
def test_each_family_has_the_losses_of_one_process(name: str, tmp_path: Path) -> None:
    """Without dropout, whose numbers depend on the process."""
    fields = get_family(name).config_type.__struct_fields__
    config = {field: 0.0 for field in fields if field.endswith("dropout")}
    table = labelled(tmp_path / "t.tsv")
    tree = settings(name, table, config=config, max_steps=4, data={"eval_fraction": 0.4})
    assert_two_processes_equal_one(tmp_path / "runs", tree)


@pytest.mark.long
def test_two_processes_have_the_losses_and_metrics_of_one(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """With an evaluation that splits between them, and one of an odd number of samples."""
    import yaml

    model, _ = pretrained()
    for count in (20, 21):
        held = labelled(tmp_path / f"e{count}.tsv", count, seed=1)
        tree = settings(model, labelled(tmp_path / "t.tsv"), data={"eval": [str(held)]})
        file = tmp_path / f"{count}.yaml"
        file.write_text(yaml.safe_dump(tree))
        one_process = finetune(tmp_path / f"one{count}", tree)
        run = tmp_path / f"two{count}"
        finish_in_two_processes("finetune", str(file), "-o", str(run))
        for split in ("train", "validation"):
            expected = records(one_process, split)
            for record, other in zip(records(run, split), expected, strict=True):
                assert record["loss"] == pytest.approx(other["loss"], abs=1e-5)
                assert record["metrics"] == pytest.approx(other["metrics"], abs=1e-5)
