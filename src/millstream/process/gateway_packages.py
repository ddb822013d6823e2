"""Names the packages that a gateway needs beyond the base installation."""

GATEWAY_PACKAGES = ("grpc", "httptools", "starlette", "uvicorn")


def missing_gateway_packages() -> list[str]:
    """Returns the names of the packages that are not installed, without loading any."""
    from importlib.util import find_spec  # Imported on demand, because a broker without a gateway does not need it.

    return [name for name in GATEWAY_PACKAGES if find_spec(name) is None]
