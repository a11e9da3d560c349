"""What several peers are made of."""
