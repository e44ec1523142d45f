"""SentencePiece models, converted to ``tokenizers`` without the sentencepiece library."""
