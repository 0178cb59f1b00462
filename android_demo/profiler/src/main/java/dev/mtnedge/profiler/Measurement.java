package dev.mtnedge.profiler;

import ai.onnxruntime.OrtEnvironment;
import com.eclipsesource.json.JsonArray;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;
import dev.mtnedge.suggester.FolderSource;
import dev.mtnedge.suggester.Request;
import dev.mtnedge.suggester.Session;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggesterException;
import dev.mtnedge.suggester.Suggestion;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Opens the bundle of a job, answers its golden key presses, then times every key press of its sessions. */
final class Measurement {
    /** Is told how many requests are answered. */
    interface Progress {
        void done(int requests);
    }

    private static final int REPORT_EVERY = 100;

    private final JsonObject job;
    private final int suggestions;
    private final Progress progress;
    private final List<List<String>> sessions = new ArrayList<>();

    Measurement(JsonObject job, Progress progress) {
        this.job = job;
        this.progress = progress;
        suggestions = job.get("suggestions").asInt();
        for (JsonValue session : job.get("sessions").asArray()) {
            sessions.add(texts(session));
        }
    }

    /**
     * Does the job; one that is {@code cold} opens the bundle before ONNX Runtime's library is there, as an app does.
     *
     * @return the times in milliseconds, memory in MB (10^6 bytes): {@code import_ms} (ONNX Runtime's library), {@code load_ms}
     * (with the check of all hashes), {@code open_rss_mb} and {@code rss_mb} (growth of resident memory since the
     * library was there, by opening and in all), {@code process_mb}, {@code encode}, {@code requests} (four numbers
     * each: session, earlier queries, characters typed, milliseconds) and {@code golden} (a list of texts and scores
     * for each key press).
     */
    JsonObject run() throws SuggesterException, IOException {
        long began = System.nanoTime();
        if (!job.getBoolean("cold", false)) {
            OrtEnvironment.getEnvironment();
        }
        double imported = since(began);
        double before = residentMegabytes();
        began = System.nanoTime();
        try (Suggester suggester = Suggester.open(new FolderSource(new File(job.get("bundle").asString())),
                new Suggester.Options().threads(job.get("threads").asInt()))) {
            double loaded = since(began);
            double opened = residentMegabytes();
            JsonArray golden = answerGolden(suggester);
            warmUp(suggester);
            JsonArray encode = new JsonArray();
            JsonArray requests = new JsonArray();
            typeAll(suggester, encode, requests);
            double after = residentMegabytes();
            String version = OrtEnvironment.getEnvironment().getVersion();
            return new JsonObject().add("onnxruntime", version).add("import_ms", imported).add("load_ms", loaded)
                    .add("open_rss_mb", opened - before).add("rss_mb", after - before).add("process_mb", after)
                    .add("encode", encode).add("requests", requests).add("golden", golden);
        }
    }

    private JsonArray answerGolden(Suggester suggester) throws SuggesterException {
        JsonArray answers = new JsonArray();
        for (JsonValue vector : job.get("golden").asArray()) {
            Session session = session(suggester, texts(vector.asObject().get("session")));
            Request request = Request.of(vector.asObject().get("typed").asString(), suggestions).minProbability(0);
            JsonArray list = new JsonArray();
            for (Suggestion each : session.suggest(request).suggestions()) {
                list.add(new JsonArray().add(each.text()).add(each.score()));
            }
            answers.add(list);
        }
        return answers;
    }

    private void warmUp(Suggester suggester) throws SuggesterException {
        int left = job.get("warm_up").asInt();
        for (List<String> queries : sessions) {
            for (int earlier = 0; earlier < queries.size(); earlier++) {
                String query = queries.get(earlier);
                for (int typed = 0; typed <= characters(query); typed++) {
                    if (left-- <= 0) {
                        return;
                    }
                    session(suggester, queries.subList(0, earlier)).suggest(beginning(query, typed), suggestions);
                }
            }
        }
    }

    private void typeAll(Suggester suggester, JsonArray encode, JsonArray requests) throws SuggesterException {
        int answered = 0;
        for (int number = 0; number < sessions.size(); number++) {
            List<String> queries = sessions.get(number);
            Session session = suggester.session();
            for (int earlier = 0; earlier < queries.size(); earlier++) {
                if (earlier > 0) {
                    long began = System.nanoTime();
                    session.append(queries.get(earlier - 1));
                    encode.add(since(began));
                }
                String query = queries.get(earlier);
                for (int typed = 0; typed <= characters(query); typed++) {
                    String prefix = beginning(query, typed);
                    long began = System.nanoTime();
                    session.suggest(prefix, suggestions);
                    requests.add(number).add(earlier).add(typed).add(since(began));
                    if (++answered % REPORT_EVERY == 0) {
                        progress.done(answered);
                    }
                }
            }
        }
    }

    private static Session session(Suggester suggester, List<String> queries) throws SuggesterException {
        Session session = suggester.session();
        for (String query : queries) {
            session.append(query);
        }
        return session;
    }

    private static List<String> texts(JsonValue list) {
        List<String> texts = new ArrayList<>();
        for (JsonValue text : list.asArray()) {
            texts.add(text.asString());
        }
        return texts;
    }

    private static int characters(String text) {
        return text.codePointCount(0, text.length());
    }

    private static String beginning(String text, int characters) {
        return text.substring(0, text.offsetByCodePoints(0, characters));
    }

    private static double since(long began) {
        return (System.nanoTime() - began) / 1e6;
    }

    private static double residentMegabytes() throws IOException {
        try (BufferedReader status = new BufferedReader(new FileReader("/proc/self/status"))) {
            for (String line = status.readLine(); line != null; line = status.readLine()) {
                if (line.startsWith("VmRSS:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024 / 1e6;
                }
            }
        }
        throw new IOException("/proc/self/status tells no resident memory");
    }
}
