"""How the committed tokenizer, prompts and weights were made; not needed to use them."""
