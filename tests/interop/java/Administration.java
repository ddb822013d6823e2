import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, settings and groups. */
final class Administration {
    private static final long TIMEOUT_S = 30;

    /** A call of the admin client. */
    private interface Call {
        Object make(Admin admin, JsonNode order) throws Exception;
    }

    private Administration() {}

    static Map<String, Servant.Order> orders() {
        Map<String, Call> calls = new HashMap<>();
        calls.put("topics", Administration::topics);
        calls.put("create", Administration::create);
        calls.put("delete", (admin, order) -> await(admin.deleteTopics(List.of(topic(order))).all()));
        calls.put("grow", (admin, order) -> await(admin.createPartitions(
                Map.of(topic(order), NewPartitions.increaseTo(order.get("total").asInt()))).all()));
        calls.put("settings", Administration::settings);
        calls.put("alter", Administration::alter);
        calls.put("delete records", Administration::deleteRecords);
        calls.put("groups", Administration::groups);
        calls.put("describe group", Administration::describeGroup);
        calls.put("committed", Administration::committed);
        calls.put("reset group", Administration::resetGroup);
        calls.put("delete group", (admin, order) -> await(admin.deleteConsumerGroups(List.of(group(order))).all()));
        Map<String, Servant.Order> orders = new HashMap<>();
        calls.forEach((word, call) -> orders.put(word, order -> {
            try (Admin admin = Admin.create(Servant.common(order))) {
                return call.make(admin, order);
            }
        }));
        return orders;
    }

    private static Object topics(Admin admin, JsonNode order) throws Exception {
        Map<String, Integer> found = new HashMap<>();
        var names = await(admin.listTopics().names());
        await(admin.describeTopics(names).allTopicNames()).forEach((name, topic) -> found.put(name, topic.partitions().size()));
        return found;
    }

    private static Object create(Admin admin, JsonNode order) throws Exception {
        var partitions = Optional.of(order.get("partitions").asInt());
        var topic = new NewTopic(topic(order), partitions, Optional.of((short) order.get("replication").asInt()));
        return await(admin.createTopics(List.of(topic.configs(pairs(order.get("settings"))))).all());
    }

    private static Object deleteRecords(Admin admin, JsonNode order) throws Exception {
        var where = new TopicPartition(topic(order), order.get("partition").asInt());
        var before = RecordsToDelete.beforeOffset(order.get("before").asLong());
        return await(admin.deleteRecords(Map.of(where, before)).lowWatermarks().get(where)).lowWatermark();
    }

    private static Object settings(Admin admin, JsonNode order) throws Exception {
        Map<String, Object> found = new HashMap<>();
        ConfigResource topic = resource(order);
        await(admin.describeConfigs(List.of(topic)).all()).get(topic).entries().forEach(entry -> {
            boolean own = entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG;
            found.put(entry.name(), Arrays.asList(entry.value(), own));
        });
        return found;
    }

    private static Object alter(Admin admin, JsonNode order) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        pairs(order.get("settings")).forEach((name, value) ->
                changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        return await(admin.incrementalAlterConfigs(Map.of(resource(order), changes)).all());
    }

    private static Object groups(Admin admin, JsonNode order) throws Exception {
        return await(admin.listGroups().all()).stream().map(listing -> listing.groupId()).toList();
    }

    private static Object describeGroup(Admin admin, JsonNode order) throws Exception {
        ConsumerGroupDescription group = await(admin.describeConsumerGroups(List.of(group(order))).all()).get(group(order));
        return Map.of("state", group.groupState().toString(), "members", group.members().size());
    }

    private static Object committed(Admin admin, JsonNode order) throws Exception {
        Map<String, Long> found = new HashMap<>();
        await(admin.listConsumerGroupOffsets(group(order)).partitionsToOffsetAndMetadata()).forEach((where, offset) -> {
            if (offset != null && where.topic().equals(topic(order))) {
                found.put(String.valueOf(where.partition()), offset.offset());
            }
        });
        return found;
    }

    private static Object resetGroup(Admin admin, JsonNode order) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        order.get("offsets").fields().forEachRemaining(pair -> offsets.put(
                new TopicPartition(topic(order), Integer.parseInt(pair.getKey())),
                new OffsetAndMetadata(pair.getValue().asLong())));
        return await(admin.alterConsumerGroupOffsets(group(order), offsets).all());
    }

    private static <T> T await(KafkaFuture<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private static ConfigResource resource(JsonNode order) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(order));
    }

    private static Map<String, String> pairs(JsonNode node) {
        Map<String, String> pairs = new HashMap<>();
        node.fields().forEachRemaining(pair -> pairs.put(pair.getKey(), pair.getValue().asText()));
        return pairs;
    }

    private static String topic(JsonNode order) {
        return order.get("topic").asText();
    }

    private static String group(JsonNode order) {
        return order.get("group").asText();
    }
}
