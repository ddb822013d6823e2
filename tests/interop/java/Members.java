import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of groups, each polled by a thread of its own until it leaves. */
final class Members {
    private static final long PATIENCE_S = 60;
    private static final Map<Integer, Member> MEMBERS = new HashMap<>();

    private Members() {}

    static Map<String, Servant.Order> orders() {
        return Map.of(
                "join", Members::join,
                "assigned", order -> member(order).assigned(),
                "received", order -> member(order).received(),
                "commit", order -> member(order).commit(),
                "leave", order -> member(order).leave());
    }

    private static Object join(JsonNode order) {
        Properties settings = Servant.common(order);
        settings.put("group.id", order.get("group").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        switch (order.get("protocol").asText()) {
            case "new" -> settings.put("group.protocol", "consumer");
            case "cooperative" -> classic(settings, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            default -> classic(settings, "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        int number = MEMBERS.size();
        MEMBERS.put(number, new Member(settings, order.get("topic").asText()));
        return number;
    }

    private static void classic(Properties settings, String assignor) {
        settings.put("group.protocol", "classic");
        settings.put("partition.assignment.strategy", assignor);
        settings.put("heartbeat.interval.ms", "300");
    }

    private static Member member(JsonNode order) {
        return MEMBERS.get(order.get("member").asInt());
    }

    private static final class Member {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final List<Object> received = new CopyOnWriteArrayList<>();
        private final AtomicReference<CompletableFuture<Void>> commit = new AtomicReference<>();
        private final CompletableFuture<Void> ended = new CompletableFuture<>();
        private volatile Set<Integer> assigned = Set.of();
        private volatile boolean leaving;

        Member(Properties settings, String topic) {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(topic));
            Thread thread = new Thread(this::run, "member");
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            try (consumer) {
                while (!leaving) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        List<Object> row = new ArrayList<>(List.of(record.partition(), record.offset()));
                        row.add(record.value());
                        received.add(row);
                    }
                    assigned = consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toSet());
                    obey(commit.getAndSet(null));
                }
                assigned = Set.of();
            } catch (RuntimeException failure) {
                ended.completeExceptionally(failure);
            }
            ended.complete(null);
        }

        private void obey(CompletableFuture<Void> wanted) {
            if (wanted == null) {
                return;
            }
            try {
                consumer.commitSync();
                wanted.complete(null);
            } catch (RuntimeException failure) {
                wanted.completeExceptionally(failure);
            }
        }

        Object assigned() throws Exception {
            check();
            return assigned;
        }

        Object received() throws Exception {
            check();
            return received;
        }

        Object commit() throws Exception {
            var done = new CompletableFuture<Void>();
            commit.set(done);
            return done.get(PATIENCE_S, TimeUnit.SECONDS);
        }

        Object leave() throws Exception {
            leaving = true;
            return ended.get(PATIENCE_S, TimeUnit.SECONDS);
        }

        private void check() throws Exception {
            if (ended.isCompletedExceptionally()) {
                ended.get();
            }
        }
    }
}
