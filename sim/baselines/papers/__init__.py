"""Rules of published systems."""
