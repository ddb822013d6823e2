"""The Kafka-protocol server: listener, connections, dispatch table, one handler per API, push subscriptions."""
