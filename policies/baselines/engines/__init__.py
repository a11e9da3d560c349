"""Rules of serving engines as they ship them, or have proposed them."""
