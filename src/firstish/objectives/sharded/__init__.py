"""Models whose parameters are sharded over processes."""
