"""Text of six kinds, as prompts and answers, from releases on PyPI: for records of two sources.

`prose`, `code` and `edit` are the authors' own text; `quote`, `agent` and `json` are composed by
rule from such text. None of it is committed.
"""
