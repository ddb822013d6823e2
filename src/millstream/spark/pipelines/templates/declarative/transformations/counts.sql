-- A table that is made anew in each run.
CREATE MATERIALIZED VIEW counts AS SELECT key, count(*) AS messages FROM messages GROUP BY key;
