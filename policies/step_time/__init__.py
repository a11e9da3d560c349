"""How long a step takes, learned online or read from a profile.

Also which K a load has not been timed with yet.
"""
