"""Demonstrations with real processes."""
