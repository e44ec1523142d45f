"""Fixtures of the rooms that tasks share."""

from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.evaluation.conftest import causal as causal
from tests.finetuning.conftest import pretrained as pretrained
from tests.inference.conftest import encoder as encoder
from tests.inference.conftest import packaged as packaged
from tests.inference.conftest import small as small
from tests.tasks.causal_lm.making import source as source
