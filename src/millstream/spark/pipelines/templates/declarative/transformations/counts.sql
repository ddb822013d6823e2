-- A table that each run computes again.
CREATE MATERIALIZED VIEW counts AS SELECT key, count(*) AS messages FROM messages GROUP BY key;
