"""Substitutes for parts of the standard library that are slow to import."""
