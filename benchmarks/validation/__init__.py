"""Published measurements, one table per file, and how well the simulator reproduces them."""
