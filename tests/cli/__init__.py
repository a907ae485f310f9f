"""The commands that draw and compare."""
