"""The callbacks that all runs have: checkpoints and logs."""
