"""Consumer groups: pure state machines for members, assignments, offsets and iterators, and the runtime around them."""
