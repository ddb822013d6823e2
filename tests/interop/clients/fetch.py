"""Fetch and build what the tests drive in other languages: before the tests, so that none of them waits for it."""

from interop.clients import franz_go, grpc_go, java, kafkajs

if __name__ == "__main__":
    for module in (java, kafkajs, franz_go, grpc_go):
        module.build()
