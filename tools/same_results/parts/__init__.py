"""Parts of a record, one a module: each yields name and result."""
