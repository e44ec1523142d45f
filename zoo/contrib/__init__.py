"""Models of zoo in other programs, which are imported on use."""
