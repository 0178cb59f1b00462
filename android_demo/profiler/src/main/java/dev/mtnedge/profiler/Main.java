package dev.mtnedge.profiler;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonObject;
import dev.mtnedge.suggester.SuggesterException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;

/**
 * The measured process of {@code mtn-edge profile --adb}, for {@code app_process} on a phone or a JVM: reads a job, does
 * what it says, and prints JSON documents, one a line: {@code {"done": n}} now and then, at last {@code {"result": ...}}
 * or {@code {"error": ...}}. The same protocol, in Python, is {@code mtn_edge/profiling/worker.py}.
 */
public final class Main {
    private static final int FAULT = 1;
    private static final int INTERRUPTED = 130;

    private Main() {}

    /** @param arguments the file of the job. */
    public static void main(String[] arguments) throws IOException {
        endWithInput();
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        int status = 0;
        try {
            JsonObject job = read(new File(arguments[0]));
            Measurement measurement = new Measurement(job, done -> out.println(new JsonObject().add("done", done)));
            out.println(new JsonObject().add("result", measurement.run()));
        } catch (SuggesterException error) {
            status = FAULT;
            out.println(new JsonObject().add("error",
                    new JsonObject().add("message", error.getMessage()).add("code", error.code())));
        }
        out.flush();
        System.exit(status);
    }

    /** Whoever started this holds its input open; when that end is gone, nobody waits for the result any more. */
    private static void endWithInput() {
        Thread thread = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // nothing is said there
                }
            } catch (IOException error) {
                // as good as its end
            }
            Runtime.getRuntime().halt(INTERRUPTED);
        }, "input");
        thread.setDaemon(true);
        thread.start();
    }

    private static JsonObject read(File file) throws IOException {
        try (Reader reader = new InputStreamReader(new FileInputStream(file), StandardCharsets.UTF_8)) {
            return Json.parse(reader).asObject();
        }
    }
}
