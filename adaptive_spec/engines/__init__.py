"""What the adapters of several engines share.

Hints of a request, facts about an engine's source, tested versions.
"""
