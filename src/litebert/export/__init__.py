"""Outward, to other software."""
