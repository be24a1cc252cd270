"""Ranking text for a question: words and their stems, and BM25 over titles, headings and bodies.

Pure functions: the callers read indexes and files.
"""
