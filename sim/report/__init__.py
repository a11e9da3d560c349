"""Report of a sweep: one HTML page and pictures."""
