package dev.mtnedge.suggester;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonArray;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;
import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.Test;

/** Answers questions.jsonl in answers.jsonl, a document a line; Python compares them with its own. */
public class AnswersTest {
    private final Map<String, Suggester> opened = new HashMap<>();
    private final Map<String, Session> sessions = new HashMap<>();

    @Test
    public void answersEveryQuestion() throws Exception {
        List<String> questions = Files.readAllLines(Fixtures.path("questions.jsonl"), StandardCharsets.UTF_8);
        try (BufferedWriter answers = Files.newBufferedWriter(Fixtures.path("answers.jsonl"), StandardCharsets.UTF_8)) {
            for (String line : questions) {
                JsonObject question = Json.parse(line).asObject();
                answers.write((question.get("typed") != null ? list(question) : text(question)).toString());
                answers.newLine();
            }
        } finally {
            for (Suggester suggester : opened.values()) {
                suggester.close();
            }
        }
    }

    private JsonObject list(JsonObject question) throws SuggesterException {
        Request request = Request.of(question.getString("typed", ""), question.getInt("k", 0));
        JsonValue floor = question.get("floor");
        if (floor != null) {
            request = request.minProbability(floor.asDouble());
        }
        SuggestResult result = session(question).suggest(request);
        JsonArray suggestions = new JsonArray();
        for (Suggestion suggestion : result.suggestions()) {
            suggestions.add(new JsonObject().add("text", suggestion.text()).add("score", suggestion.score())
                    .add("source", suggestion.source().name().toLowerCase(java.util.Locale.ROOT)));
        }
        JsonValue reason = result.reason() == null ? Json.NULL : Json.value(result.reason().sentence());
        return new JsonObject().add("suggestions", suggestions).add("reason", reason);
    }

    /** The session of a question: a list of queries, null where a new session of the same user begins. */
    private Session session(JsonObject question) throws SuggesterException {
        String bundle = question.getString("bundle", "");
        String key = bundle + question.get("session");
        Session session = sessions.get(key);
        if (session == null) {
            sessions.clear();
            session = suggester(bundle).session();
            for (JsonValue query : question.get("session").asArray()) {
                if (query.isNull()) {
                    session.begin();
                } else {
                    session.append(query.asString());
                }
            }
            sessions.put(key, session);
        }
        return session;
    }

    private JsonObject text(JsonObject question) throws SuggesterException {
        String text = question.getString("text", "");
        String normal = Text.normalizePrefix(text);
        JsonArray tokens = new JsonArray();
        for (int token : suggester(question.getString("bundle", "")).tokenizer.encode(normal)) {
            tokens.add(token);
        }
        JsonArray words = new JsonArray();
        for (String word : Blocklist.words(text)) {
            words.add(word);
        }
        JsonArray unknown = new JsonArray();
        text.codePoints().filter(code -> !Character.isDefined(code)).forEach(unknown::add);
        return new JsonObject().add("normal", normal).add("fold", Text.fold(text)).add("words", words)
                .add("tokens", tokens).add("unknown", unknown);
    }

    private Suggester suggester(String bundle) throws SuggesterException {
        Suggester suggester = opened.get(bundle);
        if (suggester == null) {
            suggester = Suggester.open(Fixtures.source(bundle));
            opened.put(bundle, suggester);
        }
        return suggester;
    }
}
