"""Agents: what bounds a run, decides its turns and drives its tree."""
