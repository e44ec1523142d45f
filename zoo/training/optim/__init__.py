"""Optimizers, parameter groups, learning-rate schedules and the moving average of weights."""
