"""Models over HTTP, and a page to try them on."""
