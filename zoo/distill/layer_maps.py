"""Correspondence of a student's layers and its teacher's, counted from 0."""

from collections.abc import Iterator

import numpy as np

from zoo.errors import UsageError
from zoo.families.distillation import LayerMap


def resolve_layers(layers: LayerMap, student: int, teacher: int) -> list[tuple[int, int]]:
    """Return pairs of a student's and a teacher's layer, both from 0.

    Args:
        layers: the map; see ``zoo.families.distillation.LayerMap``.
        student: number of layers of the student.
        teacher: number of layers of the teacher.

    Raises:
        UsageError: a layer does not exist, or the student is deeper than its teacher.
    """
    if not isinstance(layers, str):
        pairs = list(layers)
    elif layers == "last":
        pairs = [(-1, -1)]
    else:
        if student > teacher:
            raise UsageError(
                f"layers: {layers}, and the student has {student} layers, its teacher {teacher}",
                "name pairs of layers, such as layers: [[0, 0], [1, 0]]",
            )
        pairs = list(enumerate(_teacher_layers(layers, student, teacher)))
    if not pairs:
        raise UsageError(
            f"layers: {layers} compares no layer of a student with {student}",
            "name pairs of layers, such as layers: [[0, 0]]",
        )
    return [(_index(a, student, "student"), _index(b, teacher, "teacher")) for a, b in pairs]


def _teacher_layers(layers: str, student: int, teacher: int) -> Iterator[int]:
    if layers == "first":
        yield from range(student)
    elif layers == "spread":  # 12 layers to 6: 0, 2, 4, 7, 9, 11
        yield from np.linspace(0, teacher - 1, student).round().astype(int).tolist()
    else:
        groups = [(number + 1) * teacher // student - 1 for number in range(student)]
        yield from groups[:-1] if layers == "skip" else groups


def _index(layer: int, count: int, model: str) -> int:
    """Return the non-negative index of a layer.

    Raises:
        UsageError: there is no such layer.
    """
    if not -count <= layer < count:
        raise UsageError(
            f"layers: the {model} has no layer {layer}", f"it has the layers 0 to {count - 1}"
        )
    return layer % count
