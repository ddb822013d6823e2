"""Fetch and build what the tests drive in other languages and environments: before them, so that none waits for it."""

from bench.spark import connector

from interop.clients import franz_go, grpc_go, java, kafkajs

if __name__ == "__main__":
    for module in (java, kafkajs, franz_go, grpc_go, connector):
        module.build()
