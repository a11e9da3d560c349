"""The command line `adaptive-spec`.

Other packages add commands through the entry-point group `adaptive_spec.commands`.
"""
