"""Ablations: a recipe of cells -> runs, none of them made twice -> a table with the paper's figures beside ours."""
