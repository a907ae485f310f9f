"""Benchmark or user files -> examples; logits -> predictions -> score."""
