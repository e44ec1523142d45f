"""Runs that began when families lower-cased texts resume with the tokenizer that they have."""

import json
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

from tests.training.runs import run_training
from tests.training.runs import small as small_config
from zoo.errors import UsageError
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import pretrain_setup
from zoo.training.state.earlier_versions import with_unrecorded_settings
from zoo.training.state.run_manifest import MANIFEST, SETTINGS

pytestmark = pytest.mark.usefixtures("shared_home")


def forget_normalization(run: Path) -> None:
    """Rewrite the settings of a run as an earlier version wrote them."""
    settings = yaml.safe_load((run / SETTINGS).read_text("utf-8"))
    for name in ("lowercase", "strip_accents"):
        del settings["data"][name]
    (run / SETTINGS).write_text(yaml.safe_dump(settings), encoding="utf-8")
    manifest = json.loads((run / MANIFEST).read_bytes())
    manifest |= {"settings": None, "files": {}, "digest": ""}
    (run / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.long
def test_a_run_of_an_earlier_version_resumes(tmp_path: Path) -> None:
    options = {"max_steps": 4, "save_steps": 2, "eval_steps": 4, "objective": "masked-lm"}
    data = {"lowercase": True, "strip_accents": True}
    run = run_training(tmp_path / "run", "bert", **options, data=data)
    forget_normalization(run)
    longer = tmp_path / "longer"
    training = PretrainRun({"max_steps": 6}, DistContext.initialize("cpu"), longer)
    training.continue_from(run)
    tokenizer = Tokenizer.from_file(str(longer / "model" / "tokenizer.json"))
    assert tokenizer.normalizer.normalize_str("Fühl") == "fuhl"
    settings = yaml.safe_load((longer / SETTINGS).read_text("utf-8"))
    assert settings["data"]["lowercase"] is True


def test_settings_of_earlier_versions_follow_the_family() -> None:
    def filled(family: str, **data: object) -> object:
        return with_unrecorded_settings({"family": family, "data": data})["data"]

    both = {"lowercase": True, "strip_accents": True}
    for family in ("bert", "distilbert", "electra", "mpnet", "xlm", "albert"):
        assert filled(family) == both
    assert filled("xlnet") == {"lowercase": False, "strip_accents": True}
    assert filled("gpt") == filled("t5") == filled("elmo") == {}
    assert filled("bert", tokenizer="REF") == {"tokenizer": "REF"}
    assert filled("bert", lowercase=False) == {"lowercase": False}


@pytest.mark.parametrize("name", ["lowercase", "strip_accents"])
def test_normalization_is_refused_for_a_tokenizer_that_exists(tmp_path: Path, name: str) -> None:
    corpus = pretrain_setup(small_config("bert", objective="masked-lm")).corpus.path
    for data in ({"tokenizer": str(corpus)}, {"paths": [str(corpus)], "eval_paths": []}):
        config = small_config("bert", objective="masked-lm", data={**data, name: True})
        with pytest.raises(UsageError, match=f"data.{name} is for a tokenizer to train"):
            pretrain_setup(config)
