"""Decodes message values into typed columns, from JSON and Avro."""
