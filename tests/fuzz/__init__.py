"""A fuzzer of all readers of files: damaged and malicious input to commands.

``python -m tests.fuzz --cases 20000`` runs it; docs/reliability.md has its results.

* ``trees``, ``octets``, ``records``, ``pickles``: mutations of JSON and YAML, of bytes, of
  protobuf messages and of pickles.
* ``readers``: one class for each kind of file, with a small valid example, the command that reads
  it, and an independent check of the result.
* ``case``: one mutation, in a fork with limits on time and memory.
* ``campaign``: many of them.
"""
