"""Qt widgets, one file a view."""
