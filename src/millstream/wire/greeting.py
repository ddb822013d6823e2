"""Makes the ApiVersions request with which a client opens each connection to a broker."""

from millstream.wire.client_connection import API_VERSIONS, ApiRequest, BrokerVersions, VersionRange
from millstream.wire.messages import read_response, write_request


def api_versions(software: str, software_version: str) -> ApiRequest[BrokerVersions]:
    """Ask for the versions that a broker serves, and name the client's software."""
    fields = {"client_software_name": software, "client_software_version": software_version}

    def decode(version: int, frame: memoryview, start: int) -> BrokerVersions:
        answer = read_response(API_VERSIONS.name, version, frame, start)
        ranges = {row["api_key"]: VersionRange(row["min_version"], row["max_version"]) for row in answer["api_keys"]}
        return BrokerVersions(answer["error_code"], ranges)

    return ApiRequest(API_VERSIONS, lambda version: [write_request(API_VERSIONS.name, version, fields)], decode)
