import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;

/** Drives Kafka's client and tools for the tests: one JSON order per line, one JSON answer per line. */
public final class Servant {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The implementation of one operation. */
    interface Order {
        Object obey(JsonNode order) throws Exception;
    }

    private final Map<String, Order> orders = new LinkedHashMap<>();

    private Servant() {
        for (Map<String, Order> some : List.of(
                Writing.orders(), Reading.orders(), Members.orders(), Administration.orders(), Tools.orders())) {
            orders.putAll(some);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // Redirected, because the tools write to standard output, which is reserved for answers.
        System.setOut(System.err);
        Servant servant = new Servant();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(servant.answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private Map<String, Object> answer(JsonNode order) {
        Map<String, Object> said = new LinkedHashMap<>();
        try {
            said.put("answer", orders.get(order.get("do").asText()).obey(order));
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            said.put("refused", code(cause));
            said.put("text", String.valueOf(cause));
        }
        return said;
    }

    /** The consumer has an exception of its own for OFFSET_OUT_OF_RANGE. */
    private static short code(Throwable cause) {
        boolean outOfRange = cause instanceof OffsetOutOfRangeException;
        return outOfRange ? Errors.OFFSET_OUT_OF_RANGE.code() : Errors.forException(cause).code();
    }

    /** The settings that every client needs. */
    static Properties common(JsonNode order) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", order.get("bootstrap").asText());
        return settings;
    }

    /** Bytes that may be missing. */
    static byte[] bytes(JsonNode node) throws java.io.IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}
