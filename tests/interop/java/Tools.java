import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command line tools within this process, because each start of Java takes a second or more. */
final class Tools {
    /** Thrown instead of ending the process. Some tools catch it and exit again, so only the first exit counts. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private final ByteArrayOutputStream output = new ByteArrayOutputStream();
    private final ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private final List<Runnable> hooks = new ArrayList<>();
    private int code = -1;

    private Tools() {}

    static Map<String, Servant.Order> orders() {
        return Map.of("tool", order -> new Tools().run(order));
    }

    private Map<String, Object> run(JsonNode order) throws Exception {
        List<String> arguments = new ArrayList<>();
        order.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        Exit.Procedure end = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            ended(code);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        listen();
        System.setIn(new ByteArrayInputStream(order.get("input").binaryValue()));
        try {
            main(order.get("tool").asText(), arguments.toArray(new String[0]));
            // Some tools complete their work only in a shutdown hook.
            listen();
            hooks.forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        return Map.of("code", code, "output", output.toByteArray(), "errors", errors.toByteArray());
    }

    private void main(String tool, String[] arguments) throws ReflectiveOperationException {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            ended(0);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
            }
            ended(1);
        }
    }

    private void listen() {
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
    }

    /** Keeps the first exit code, and discards later output, which only reports the exception above. */
    private void ended(int number) {
        if (code < 0) {
            code = number;
            System.out.flush();
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
    }
}
