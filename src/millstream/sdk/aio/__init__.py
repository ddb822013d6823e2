"""The public classes for asyncio. `sdk/sync` is generated from them."""
