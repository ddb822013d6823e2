"""The listener and its connections: frames in, responses out, memory and time bounded per client."""
