"""Rules shipped by serving engines or proposed for them."""
