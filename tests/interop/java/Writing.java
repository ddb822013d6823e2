import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers: for one call, or open until closed. */
final class Writing {
    private static final long TIMEOUT_S = 30;
    private static final Map<Integer, Stream> STREAMS = new HashMap<>();

    private record Stream(
            String topic, KafkaProducer<byte[], byte[]> producer, List<Future<RecordMetadata>> waiting) {}

    private Writing() {}

    static Map<String, Servant.Order> orders() {
        return Map.of(
                "write", Writing::write,
                "open stream", Writing::open,
                "send", Writing::send,
                "close stream", Writing::close);
    }

    private static Object write(JsonNode order) throws Exception {
        String topic = order.get("topic").asText();
        Properties settings = settings(order);
        settings.put("compression.type", order.get("compression").asText());
        settings.put("enable.idempotence", order.get("idempotent").asText());
        settings.put("delivery.timeout.ms", "35000");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (JsonNode message : order.get("messages")) {
                waiting.add(producer.send(record(topic, order.get("partition").asInt(), message)));
            }
            return offsets(waiting);
        }
    }

    private static Object open(JsonNode order) {
        Properties settings = settings(order);
        settings.put("enable.idempotence", "true");
        int number = STREAMS.size();
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        STREAMS.put(number, new Stream(order.get("topic").asText(), producer, new ArrayList<>()));
        return number;
    }

    private static Object send(JsonNode order) throws Exception {
        Stream stream = STREAMS.get(order.get("stream").asInt());
        for (JsonNode message : order.get("messages")) {
            stream.waiting.add(stream.producer.send(record(stream.topic, 0, message)));
        }
        return null;
    }

    private static Object close(JsonNode order) throws Exception {
        Stream stream = STREAMS.get(order.get("stream").asInt());
        try (stream.producer) {
            offsets(stream.waiting);
        }
        return null;
    }

    private static List<Long> offsets(List<Future<RecordMetadata>> waiting) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (var future : waiting) {
            offsets.add(future.get(TIMEOUT_S, TimeUnit.SECONDS).offset());
        }
        return offsets;
    }

    private static Properties settings(JsonNode order) {
        Properties settings = Servant.common(order);
        settings.put("acks", "all");
        settings.put("linger.ms", "20");
        settings.put("batch.size", "1000000");
        settings.put("max.request.size", "20000000");
        return settings;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, JsonNode message) throws Exception {
        Long timestamp = message.get("timestamp").isNull() ? null : message.get("timestamp").asLong();
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : message.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), Servant.bytes(header.get(1))));
        }
        byte[] key = Servant.bytes(message.get("key"));
        return new ProducerRecord<>(topic, partition, timestamp, key, Servant.bytes(message.get("value")), headers);
    }
}
