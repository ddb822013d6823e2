"""Defines the types that all packages share: names, ids, limits, roles, versions, and the one error table."""
