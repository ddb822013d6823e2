"""From a topic to Parquet files, in a directory for each day.

Run it with `millstream pipeline run my_pipeline.py`: it writes files until Ctrl-C, and goes on there the next time.
With
--once it writes what is there, and ends. Read them with spark.read.parquet("my_pipeline.parquet").
"""

SOURCE = "orders"
FILES = "my_pipeline.parquet"

messages = (
    spark.readStream.format("millstream")
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")
    .option("maxBytesPerTrigger", 256 * 1024 * 1024)  # so many bytes of messages go into the files of a batch
    .load()
)

(
    messages.selectExpr("*", "CAST(timestamp AS DATE) AS day")
    .writeStream.queryName("my_pipeline")
    .format("parquet")
    .partitionBy("day")
    .option("checkpointLocation", "my_pipeline.checkpoint")
    .trigger(processingTime="1 minute")  # fewer, larger files
    .start(FILES)
)
