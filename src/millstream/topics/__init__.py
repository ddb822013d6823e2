"""Defines and checks the settings of topics."""
