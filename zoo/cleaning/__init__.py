"""Cleaning of raw text before it is tokenized: rules, deduplication and decontamination.

Texts pass a pipeline of datatrove: rules that drop texts or lines, then deduplication of lines,
spans, substrings and documents. Each stage reads the parts that the stage before has written, a
task for each file of the input, so that a stage that was interrupted goes on with the tasks that
are missing. The result does not depend on the number of processes or on the executor.
"""
