"""Distributed training: process group, DDP, FSDP, compilation, activation checkpointing."""
