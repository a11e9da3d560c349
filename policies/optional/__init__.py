"""Parts of `goodput` that are asked only where an engine, an option or a request needs them."""
