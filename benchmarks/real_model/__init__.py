"""A small real language model for the laboratory: SmolLM2-135M-Instruct."""
