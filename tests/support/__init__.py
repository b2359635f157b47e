"""Servers and rules that tests of every kind share; tests/conftest.py registers the fixtures."""
