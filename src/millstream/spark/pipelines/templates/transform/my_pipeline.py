"""From topic to topic, message by message.

Run it with `millstream pipeline run my_pipeline.py`: it reads what comes until Ctrl-C, and goes on there the next time.
With --once it reads what is there, and ends.
"""

SOURCE = "orders"
TARGET = "my_pipeline"

messages = (
    spark.readStream.format("millstream")
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")  # for the first start; after that the checkpoint knows
    .option("valueFormat", "string")
    .option("group", "my_pipeline")  # `millstream group describe my_pipeline` shows how far it is
    .load()
)

changed = messages.where("value <> ''").selectExpr("key", "upper(value) AS value")

(
    changed.writeStream.queryName("my_pipeline")
    .format("millstream")
    .option("topic", TARGET)
    .option("checkpointLocation", "my_pipeline.checkpoint")
    .start()
)
