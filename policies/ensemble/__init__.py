"""A policy that runs others and follows the one that does best."""
