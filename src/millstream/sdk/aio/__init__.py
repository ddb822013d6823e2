"""The public classes with `async` and `await`. The source: those in `sync` are generated from these."""
