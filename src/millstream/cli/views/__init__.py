"""Computes and prints the tables and live views of commands."""
