"""Writes a topic to Parquet files, in one directory per day.

Run it with `millstream pipeline run my_pipeline.py`: it writes files until Ctrl-C, and continues there at the next
start. With --once it writes the available messages and ends. Read the files with
spark.read.parquet("my_pipeline.parquet").
"""

SOURCE = "orders"
FILES = "my_pipeline.parquet"

messages = (
    spark.readStream.format("millstream")
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")
    .option("maxBytesPerTrigger", 256 * 1024 * 1024)  # about the bytes of messages per batch
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
