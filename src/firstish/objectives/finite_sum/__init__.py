"""A mean over more samples than one graph or one memory can hold."""
