"""What each mechanism of `goodput` is worth: switches that leave it out, and where they are run."""
