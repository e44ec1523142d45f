"""Text generation: greedy search, sampling and beam search."""
