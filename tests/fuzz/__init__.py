"""A fuzzer of everything that reads files: damaged and hostile input, by the commands themselves.

``python -m tests.fuzz --cases 20000`` runs it; docs/reliability.md has its results.

* ``trees``, ``octets``, ``records``, ``pickles``: mutations of JSON and YAML, of bytes, of
  protobuf messages and of pickles.
* ``readers``: one class for each kind of file, with a small sound example, the command that reads
  it, and a second opinion of what the mutated file holds.
* ``case``: one mutation, in a fork with limits on time and memory.
* ``campaign``: many of them.
"""
