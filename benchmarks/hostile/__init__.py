"""Hostile requests, and what a neighbour notices of them. `python -m benchmarks.hostile`."""
