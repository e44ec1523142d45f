"""Jobs over many files: an input file becomes an output file, and shards share the work."""
