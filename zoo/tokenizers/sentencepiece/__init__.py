"""SentencePiece models, read without the library."""
