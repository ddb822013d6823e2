-- A report on the current messages of a topic, as tables on the screen and as messages of another topic.
-- Run it with `millstream pipeline run my_pipeline.sql`.

CREATE TEMPORARY VIEW messages USING millstream
OPTIONS (topic 'orders', valueFormat 'string');

SELECT partition, count(*) AS messages, min(timestamp) AS first, max(timestamp) AS last
FROM messages GROUP BY partition ORDER BY partition;

SELECT CAST(key AS STRING) AS key, count(*) AS messages, max(length(value)) AS longest
FROM messages GROUP BY key ORDER BY messages DESC, key LIMIT 10;

-- A view to write to names its columns: value, and optionally key, headers, partition, timestamp.
CREATE TEMPORARY VIEW report (key BINARY, value STRING) USING millstream
OPTIONS (topic 'my_pipeline');

INSERT INTO report SELECT key, CAST(count(*) AS STRING) FROM messages GROUP BY key;
