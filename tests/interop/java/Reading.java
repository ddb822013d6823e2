import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers of assigned partitions, each for one call. */
final class Reading {
    private static final long TIMEOUT_S = 30;

    private Reading() {}

    static Map<String, Servant.Order> orders() {
        return Map.of("read", Reading::read, "ends", Reading::ends, "time", Reading::time);
    }

    private static Object read(JsonNode order) {
        TopicPartition where = where(order);
        int count = order.get("count").asInt();
        List<Object> found = new ArrayList<>();
        try (var consumer = consumer(order)) {
            consumer.assign(List.of(where));
            consumer.seek(where, order.get("offset").asLong());
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            while (found.size() < count && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(where)) {
                    if (found.size() < count) {
                        found.add(row(record));
                    }
                }
            }
        }
        return found;
    }

    private static Map<String, Object> row(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value());
            headers.add(pair);
        }
        Map<String, Object> row = new HashMap<>();
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("key", record.key());
        row.put("value", record.value());
        row.put("headers", headers);
        return row;
    }

    private static Object ends(JsonNode order) {
        TopicPartition where = where(order);
        try (var consumer = consumer(order)) {
            long first = consumer.beginningOffsets(List.of(where)).get(where);
            return List.of(first, consumer.endOffsets(List.of(where)).get(where));
        }
    }

    private static Object time(JsonNode order) {
        TopicPartition where = where(order);
        try (var consumer = consumer(order)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(where, order.get("timestamp").asLong())).get(where);
            return found == null ? -1 : found.offset();
        }
    }

    private static TopicPartition where(JsonNode order) {
        return new TopicPartition(order.get("topic").asText(), order.get("partition").asInt());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode order) {
        Properties settings = Servant.common(order);
        settings.put("enable.auto.commit", "false");
        // Closing waits for the fetch in flight.
        settings.put("fetch.max.wait.ms", "20");
        settings.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
