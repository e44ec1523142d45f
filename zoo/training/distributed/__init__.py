"""Distributed training: the process group, and DDP, FSDP, compilation and activation checkpointing."""
