"""Advice from recorded steps: what ran, what other set-ups would have given, what to configure.

Modules: what a trace shows (`observed`), resampled worlds (`worlds`), set-ups (`setups`) and text.
"""
