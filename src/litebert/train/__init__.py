"""Models that learn."""
