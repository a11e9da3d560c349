"""Rules that stop drafting early per request, from single-stream decoders."""
