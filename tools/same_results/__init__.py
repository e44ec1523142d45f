"""Results of two commits of the project, compared bit for bit.

    python -m tools.same_results collect OLD/.venv/bin/python old.json --runs RUNS --jobs 2
    python -m tools.same_results collect NEW/.venv/bin/python new.json --resume RUNS --jobs 2
    python -m tools.same_results compare old.json new.json

``collect`` runs the command line that an environment has installed, on tiny models that it trains
for a few steps, and writes a record: exit codes and messages, losses and metrics, and digests of
tensors, outputs, graphs and keys. ``compare`` prints what differs between two records, and exits
with 1 if anything does. A change that computes the same leaves no difference; every other one is
explained by whoever makes it. ``--only PART`` collects or compares one part, and may be repeated:

    commands      options and help of every command, messages and exit codes of wrong ones, keys
                  of ``--json``, and the projects of ``zoo plugins new``
    conversions   the golden files of ``tests/golden``, to zoo's layout and back
    families      pretraining of every family, each head that a task trains, outputs in torch and
                  ONNX Runtime
    objectives    every pretraining objective, optimizer and learning-rate schedule
    tasks         every task: its settings, its evaluation, and its output
    embeddings    every loss of embeddings with its settings
    adapters      every adapter method on several families, merged and converted
    exports       every export target in every precision, and its options
    distillation  every loss with its settings, every recipe, caches and scores
    plugins       the plugins in ``examples/plugins``

The names come from the registries of the installed version (``names.py``). A task, loss, setting,
recipe, adapter, target, objective or family without a case ends the program: add a case to the
module of its part. A command that fails is recorded with its exit code and message, and listed at
the end. Where a command fails that other results need, such as a pretraining, the part ends early,
``failed`` names it, and the exit code is 1. With ``--only``, a record of the same commit that is
there keeps its other parts, so that a part can be repeated.

``--runs`` keeps all runs of the old commit, with their optimizers. ``--resume`` cuts copies of
these runs after the first checkpoint, resumes them by the new commit, and records how they end
under ``resumed``, as the old record has it. ``--only resumed`` does nothing else.

Nothing differs from run to run of one commit on one machine: commands have one thread, times and
names of temporary directories are left out. Records of machines with other instructions, or of
other versions of torch, differ in rounding; ``compare`` says so. The record of the commit that it
names is in ``tests/results/same-results.json``, written by

    python -m tools.same_results collect .venv/bin/python tests/results/same-results.json --jobs 2
"""
