package dev.mtnedge.suggester;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * One user's queries in order, and suggestions for the next one; made by {@link Suggester#session}.
 *
 * <p>A key press may come from another thread while the list of the last one is still being made: the older request is
 * ended and answers with what it has.
 */
public final class Session {
    /** Characters of an earlier query of which the last tokens are looked for. */
    private static final int LONGEST_QUERY = 4000;

    /** The queries so far and what the engine keeps of them; replaced as a whole. */
    private static final class Past {
        final List<String> queries;
        final Map<String, Engine.Value> state;
        /** The state as the session began. */
        final Map<String, Engine.Value> opening;
        /** The number of the first query that the context holds. */
        final int first;

        Past(List<String> queries, Map<String, Engine.Value> state, Map<String, Engine.Value> opening, int first) {
            this.queries = queries;
            this.state = state;
            this.opening = opening;
            this.first = first;
        }
    }

    private final Suggester suggester;
    private final Object appending = new Object();
    private final Object asking = new Object();
    private volatile Past past;
    private Call newest = new Call();

    Session(Suggester suggester) {
        this.suggester = suggester;
        Map<String, Engine.Value> start = suggester.engine.start;
        past = new Past(Collections.<String>emptyList(), start, start, 0);
    }

    /** The queries so far, in normal form. */
    public List<String> queries() {
        return Collections.unmodifiableList(past.queries);
    }

    /**
     * Adds a query that was issued, at the price of encoding that query; one without any letter is left out.
     *
     * @throws SuggesterException {@code query} holds half a surrogate pair; the session stays as it was.
     */
    public void append(String query) throws SuggesterException {
        String normal;
        try {
            normal = Text.normalize(query);
        } catch (IllegalArgumentException error) {
            throw new SuggesterException(
                    "bad-text", "an earlier query holds a lone surrogate, which is no text; leave it out", error);
        }
        if (normal.isEmpty()) {
            return;
        }
        Engine engine = suggester.engine;
        synchronized (appending) {
            Past before = past;
            List<String> queries = new ArrayList<>(before.queries);
            queries.add(normal);
            int first = contextStart(queries.size(), engine.maxQueries);
            Map<String, Engine.Value> state = first == before.first ? before.state : before.opening;
            for (int at = first == before.first ? queries.size() - 1 : first; at < queries.size(); at++) {
                int[] tokens = suggester.tokenizer.encode(endOf(queries.get(at)));
                int from = Math.max(tokens.length - engine.maxTokens, 0);
                state = engine.append(Arrays.copyOfRange(tokens, from, tokens.length), state);
            }
            past = new Past(queries, state, before.opening, first);
        }
    }

    /**
     * Ends the session and begins a new one of the same user, who was away for a while. A model of three levels
     * remembers the sessions before; for any other this is an empty session.
     */
    public void begin() throws SuggesterException {
        synchronized (appending) {
            if (!past.queries.isEmpty()) {
                Map<String, Engine.Value> start = suggester.engine.next(past.state);
                past = new Past(Collections.<String>emptyList(), start, start, 0);
            }
        }
    }

    /** Up to {@code count} suggestions for what is being typed; with nothing typed, for the next query. */
    public SuggestResult suggest(String typed, int count) throws SuggesterException {
        return suggest(Request.of(typed, count));
    }

    /** The list for a request, on this thread. */
    public SuggestResult suggest(Request request) throws SuggesterException {
        return suggest(request, new Call());
    }

    SuggestResult suggest(Request request, Call call) throws SuggesterException {
        long began = System.nanoTime();
        Call older;
        synchronized (asking) {
            older = newest;
            newest = call;
        }
        older.end(Reason.STALE);
        Runnable answered = suggester.begin(call, request);
        List<Suggestion> list = new ArrayList<>();
        try {
            Past now = past;
            String last = now.queries.isEmpty() ? "" : now.queries.get(now.queries.size() - 1);
            Reason reason = suggester.answer(now.state, last, request, call, list);
            return new SuggestResult(request.typed, list, reason, (System.nanoTime() - began) / 1e6);
        } catch (RuntimeException error) {  // of a list or table that leads astray, whatever its checksum says
            throw new SuggesterException("failed", "no list could be made (" + error + "); make the bundle again",
                    error);
        } finally {
            answered.run();
        }
    }

    /**
     * How many of the oldest of {@code earlier} queries the context leaves out: half a context at a time, so that a
     * growing session keeps its cache in between.
     */
    private static int contextStart(int earlier, int maxQueries) {
        int half = maxQueries / 2;
        return Math.max(0, earlier - maxQueries + half - 1) / half * half;
    }

    /** The part of a query that is read: all of it, unless it is a whole document. */
    private static String endOf(String query) {
        int length = query.codePointCount(0, query.length());
        if (length <= LONGEST_QUERY) {
            return query;
        }
        String end = query.substring(query.offsetByCodePoints(0, length - LONGEST_QUERY));
        return end.substring(Math.max(end.indexOf(' '), 0));  // cut where the tokenizer cuts too
    }
}
