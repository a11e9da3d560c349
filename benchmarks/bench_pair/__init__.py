"""Small trained models that speculative decoding can be measured with on a CPU; see README.md."""
