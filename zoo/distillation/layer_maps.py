"""Which layer of a teacher each layer of its student learns from, counted from 0."""

from collections.abc import Iterator, Mapping

from zoo.errors import UsageError
from zoo.families.distillation import LayerMap


def resolve_layers(layers: LayerMap, student: int, teacher: int) -> list[tuple[int, int]]:
    """Return pairs of a student's and a teacher's layer, both from 0."""
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


# map -> number of the teacher's layers -> number of the student's -> the teacher's layers. For all
# other numbers, `seq2seq` is `spread`, and `embeddings` is `uniform`.
TABLES: Mapping[str, Mapping[int, Mapping[int, tuple[int, ...]]]] = {
    # model_distillation.py of sentence-transformers
    "embeddings": {
        12: {
            1: (5,),
            2: (3, 7),
            3: (3, 7, 11),
            4: (1, 4, 7, 10),
            6: (0, 2, 4, 6, 8, 10),
            8: (0, 1, 3, 4, 6, 7, 9, 10),
        }
    },
    # Shleifer and Rush 2020, arXiv:2010.13002, and make_student.py of transformers' examples
    "seq2seq": {
        6: {2: (0, 5), 3: (0, 2, 5), 4: (0, 1, 3, 5)},
        12: {
            2: (0, 6),
            3: (0, 6, 11),
            4: (0, 4, 8, 11),
            6: (0, 2, 4, 7, 9, 11),
            9: (0, 1, 2, 4, 5, 7, 9, 10, 11),
        },
        16: {
            2: (0, 15),
            3: (0, 8, 15),
            4: (0, 5, 10, 15),
            6: (0, 3, 6, 9, 12, 15),
            8: (0, 2, 4, 6, 8, 10, 12, 15),
            9: (0, 1, 3, 5, 7, 9, 11, 13, 15),
            12: (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15),
        },
    },
}


def _teacher_layers(layers: str, student: int, teacher: int) -> Iterator[int]:
    table = TABLES.get(layers, {}).get(teacher, {})
    if student in table:
        yield from table[student]
    elif layers == "first":
        yield from range(student)
    elif layers in ("spread", "seq2seq"):  # 12 layers to 6: 0, 2, 4, 7, 9, 11
        import numpy as np

        yield from np.linspace(0, teacher - 1, student).round().astype(int).tolist()
    else:
        groups = [(number + 1) * teacher // student - 1 for number in range(student)]
        yield from groups[:-1] if layers == "skip" else groups


def _index(layer: int, count: int, model: str) -> int:
    """Return the non-negative index of a layer."""
    if not -count <= layer < count:
        raise UsageError(
            f"layers: the {model} has no layer {layer}", f"it has the layers 0 to {count - 1}"
        )
    return layer % count
