"""Evaluations on labelled data, one module for each kind."""
