"""str -> ids."""
