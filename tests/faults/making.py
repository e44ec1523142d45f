"""Machines whose disks are full, and the messages of a command there."""

from tests.disks import fill, read_only

FREE_BYTES = 12_000  # of a full disk: enough for a directory and a small file
DISKS = {"full-disk": lambda disk: fill(disk, FREE_BYTES), "read-only": read_only}


# outputs and temporary files; partial runs and downloads are kept for resumption
INCOMPLETE = ("*.zoo-*", "out", "zoo.json", "corpus.json")
MESSAGES = {"full-disk": "No space left on device", "read-only": "Read-only file system"}
