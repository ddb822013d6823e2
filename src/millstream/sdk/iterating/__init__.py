"""Reading as a group with iterators: what goes over the wire, and the engine below the public class."""
