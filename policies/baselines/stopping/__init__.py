"""Rules that end a draft early, request by request, as single-stream decoders have them."""
