"""The leaderboard: what peers are given beforehand, and the document made of its results."""
