"""Consumer groups: members, assignment, committed offsets. Pure state, and the runtime that keeps it in the log."""
