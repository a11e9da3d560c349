"""Rules for how far each request drafts, from single-stream decoders and look-ups."""
