"""Sentences as a teacher embeds them; learned by distillation only."""

from zoo.families.tasks import TaskSpec

TASKS = (
    TaskSpec(
        "sentences",
        "Learn the vectors that a teacher gives sentences.",
        train="zoo.tasks.sentences.train:SENTENCES",
        internal=True,
    ),
)
