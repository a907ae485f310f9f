"""A loaded model at work."""
