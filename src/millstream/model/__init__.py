"""The shared vocabulary: names, ids, limits, roles, versions, and the one error table."""
