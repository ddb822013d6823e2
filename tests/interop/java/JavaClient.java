import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client as a servant of the tests: one command a line on standard input, words separated by spaces,
 * bytes in Base64 with "-" for nothing; each answer is some lines and then "done", or "refused NUMBER TEXT".
 * One process serves all tests, since starting Java costs more than most of them.
 */
public final class JavaClient {
    private static final long TIMEOUT_S = 30;

    private final String bootstrap;
    private final BufferedReader in;
    private final PrintStream out;

    private JavaClient(String bootstrap) {
        this.bootstrap = bootstrap;
        this.in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        this.out = new PrintStream(System.out, false);
    }

    public static void main(String[] arguments) throws Exception {
        new JavaClient(arguments[0]).serve();
    }

    private void serve() throws Exception {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                answer(line.split(" "));
                out.println("done");
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                String text = String.valueOf(cause).replace('\n', ' ');
                out.println("refused " + code(cause) + " " + text);
            }
            out.flush();
        }
    }

    /** The consumer has an exception of its own for what the broker calls OFFSET_OUT_OF_RANGE. */
    private static short code(Throwable cause) {
        boolean outOfRange = cause instanceof OffsetOutOfRangeException;
        return outOfRange ? Errors.OFFSET_OUT_OF_RANGE.code() : Errors.forException(cause).code();
    }

    private void answer(String[] words) throws Exception {
        switch (words[0]) {
            case "write" -> write(words[1], number(words[2]), words[3], words[4], number(words[5]));
            case "read" -> read(new TopicPartition(words[1], number(words[2])), Long.parseLong(words[3]), number(words[4]));
            case "ends" -> ends(new TopicPartition(words[1], number(words[2])));
            case "time" -> time(new TopicPartition(words[1], number(words[2])), Long.parseLong(words[3]));
            case "topics" -> topics();
            case "create" -> create(words);
            case "delete" -> delete(words[1]);
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private void write(String topic, int partition, String compression, String idempotent, int count) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            records.add(parse(topic, partition, in.readLine().split(" ")));
        }
        Properties settings = common();
        settings.put("compression.type", compression);
        settings.put("enable.idempotence", idempotent);
        settings.put("acks", "all");
        settings.put("linger.ms", "20");
        settings.put("batch.size", "1000000");
        settings.put("max.request.size", "20000000");
        settings.put("delivery.timeout.ms", "35000");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (var record : records) {
                waiting.add(producer.send(record));
            }
            for (var future : waiting) {
                out.println(future.get(TIMEOUT_S, TimeUnit.SECONDS).offset());
            }
        }
    }

    private ProducerRecord<byte[], byte[]> parse(String topic, int partition, String[] words) {
        Long timestamp = words[0].equals("-") ? null : Long.valueOf(words[0]);
        List<Header> headers = new ArrayList<>();
        for (int i = 3; i + 1 < words.length; i += 2) {
            headers.add(new RecordHeader(new String(bytes(words[i]), StandardCharsets.UTF_8), bytes(words[i + 1])));
        }
        return new ProducerRecord<>(topic, partition, timestamp, bytes(words[1]), bytes(words[2]), headers);
    }

    private void read(TopicPartition where, long offset, int count) {
        try (var consumer = consumer()) {
            consumer.assign(List.of(where));
            consumer.seek(where, offset);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            int found = 0;
            while (found < count && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(where)) {
                    if (found++ < count) {
                        out.println(show(record));
                    }
                }
            }
        }
    }

    private String show(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder();
        line.append(record.offset()).append(' ').append(record.timestamp());
        line.append(' ').append(text(record.key())).append(' ').append(text(record.value()));
        for (Header header : record.headers()) {
            line.append(' ').append(text(header.key().getBytes(StandardCharsets.UTF_8)));
            line.append(' ').append(text(header.value()));
        }
        return line.toString();
    }

    private void ends(TopicPartition where) {
        try (var consumer = consumer()) {
            out.println(consumer.beginningOffsets(List.of(where)).get(where));
            out.println(consumer.endOffsets(List.of(where)).get(where));
        }
    }

    private void time(TopicPartition where, long timestamp) {
        try (var consumer = consumer()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(where, timestamp)).get(where);
            out.println(found == null ? -1 : found.offset());
        }
    }

    private void topics() throws Exception {
        try (Admin admin = Admin.create(common())) {
            var names = admin.listTopics().names().get(TIMEOUT_S, TimeUnit.SECONDS);
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get(TIMEOUT_S, TimeUnit.SECONDS).values()) {
                out.println(topic.name() + " " + topic.partitions().size());
            }
        }
    }

    private void create(String[] words) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int i = 4; i + 1 < words.length; i += 2) {
            settings.put(words[i], words[i + 1]);
        }
        var topic = new NewTopic(words[1], Optional.of(number(words[2])), Optional.of(Short.valueOf(words[3])));
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(List.of(topic.configs(settings))).all().get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    private void delete(String name) throws Exception {
        try (Admin admin = Admin.create(common())) {
            admin.deleteTopics(List.of(name)).all().get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = common();
        settings.put("enable.auto.commit", "false");
        // Closing waits for the fetch that is under way.
        settings.put("fetch.max.wait.ms", "20");
        settings.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text.substring(1));
    }

    /** A mark in front, so that empty bytes are not an empty word. */
    private static String text(byte[] bytes) {
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }
}
