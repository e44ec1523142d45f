"""Suites: benchmarks of several tasks, with the files and the average that their papers define."""
