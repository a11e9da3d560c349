"""The leaderboard: what baselines are given beforehand, and the document made of its results."""
