"""Values as columns with types of their own: what is in a message, instead of its bytes."""
