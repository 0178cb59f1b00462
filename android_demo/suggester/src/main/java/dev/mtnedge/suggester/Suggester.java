package dev.mtnedge.suggester;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * A bundle that is ready to suggest; safe to use from several threads at once.
 *
 * <p>Opening takes some tenths of a second on a phone and reads files: not for the main thread. {@link
 * SuggestionWorker} does all of it on a thread of its own.
 */
public final class Suggester implements AutoCloseable {
    /** Characters of a typed text beyond which it is not even brought into normal form, which takes long for some. */
    private static final int LONGEST_TEXT = 1000;

    /** What may be set when a bundle is opened; each method changes this object and gives it back. */
    public static final class Options {
        private int threads = 1;
        private byte[] key;
        private Collection<String> denied = new ArrayList<>();

        /** Threads of one search; they sleep between searches. 1 unless it is set. */
        public Options threads(int count) {
            if (count < 1) {
                throw new IllegalArgumentException("`count` is " + count + ", and it must be at least 1");
            }
            threads = count;
            return this;
        }

        /** The Ed25519 public key (a PEM file's bytes) that the bundle must be signed with. */
        public Options key(byte[] pem) {
            key = pem.clone();
            return this;
        }

        /** Words and phrases never to suggest, besides the bundle's own. */
        public Options deny(Collection<String> entries) {
            denied = new ArrayList<>(entries);
            return this;
        }
    }

    final Engine engine;
    final Tokenizer tokenizer;
    private final Completions completions;
    private final Completions followers;
    private final List<Blocklist> blocklists;
    private final Decoding decoding;
    private final Search search;
    /** The requests at work. */
    private final Set<Call> running = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;
    private final ScheduledThreadPoolExecutor deadlines = new ScheduledThreadPoolExecutor(1, work -> {
        Thread thread = new Thread(work, "mtn-edge deadlines");
        thread.setDaemon(true);
        return thread;
    });

    private Suggester(BundleSource source, Options options) throws SuggesterException {
        Engine.loadRuntime();
        Bundle bundle = new Bundle(source, options.key);
        decoding = bundle.decoding;
        tokenizer = Tokenizer.read(bundle.text("tokenizer.json"));
        completions = Completions.read(Completions.FILE, bundle.file(Completions.FILE));
        followers = Completions.read(Lists.FOLLOWERS, bundle.file(Lists.FOLLOWERS));
        blocklists = Arrays.asList(Blocklist.read(bundle.text(Blocklist.FILE)), new Blocklist(options.denied));
        try {
            engine = new Engine(bundle, options.threads);  // last: nothing fails after it
        } catch (LinkageError error) {
            throw new SuggesterException("no-runtime", "ONNX Runtime cannot be loaded here (" + error.getMessage()
                    + "); the app must bring its library for this processor", error);
        }
        search = new Search(engine, tokenizer, decoding);
        deadlines.setRemoveOnCancelPolicy(true);
        deadlines.setKeepAliveTime(10, TimeUnit.SECONDS);
        deadlines.allowCoreThreadTimeOut(true);
    }

    /**
     * Opens a bundle.
     *
     * @throws SuggesterException it is no bundle, is of a newer version, one of its files is missing or damaged, or it
     *     is not signed with the key; nothing of it has run then.
     */
    public static Suggester open(BundleSource source, Options options) throws SuggesterException {
        return new Suggester(source, options);
    }

    /** Opens a bundle without any option. */
    public static Suggester open(BundleSource source) throws SuggesterException {
        return open(source, new Options());
    }

    /** An empty session. */
    public Session session() {
        return new Session(this);
    }

    /** Ends the requests at work and lets go of the model; every later call throws with the code {@code closed}. */
    @Override
    public void close() {
        closed = true;
        for (Call call : running) {
            call.end(Reason.STALE);
        }
        deadlines.shutdownNow();
        engine.close();
    }

    /**
     * Begins to work on a request, which its deadline and {@link #close} can end.
     *
     * @return must be run when it is answered.
     */
    Runnable begin(Call call, Request request) throws SuggesterException {
        running.add(call);
        Future<?> end = null;
        try {
            if (request.hasDeadline() && request.deadlineMilliseconds() <= 0) {
                call.end(Reason.TOO_LATE);
            } else if (request.hasDeadline()) {
                long left = (long) Math.min(request.deadlineMilliseconds() * 1e6, Long.MAX_VALUE / 4);
                end = deadlines.schedule(() -> call.end(Reason.TOO_LATE), left, TimeUnit.NANOSECONDS);
            }
            if (closed) {
                throw new RejectedExecutionException();
            }
        } catch (RejectedExecutionException error) {
            running.remove(call);
            throw new SuggesterException("closed", "the suggester is closed; open the bundle again", error);
        }
        Future<?> alarm = end;
        return () -> {
            running.remove(call);
            if (alarm != null) {
                alarm.cancel(false);
            }
        };
    }

    /** Fills the list of one key press; returns why it is short, null when the model filled it. */
    Reason answer(Map<String, Engine.Value> state, String last, Request request, Call call, List<Suggestion> list)
            throws SuggesterException {
        if (request.count == 0) {
            return Reason.NOTHING_ASKED;
        }
        if (request.typed.codePointCount(0, request.typed.length()) > LONGEST_TEXT) {
            return Reason.TOO_LONG;
        }
        String prefix;
        try {
            prefix = Text.normalizePrefix(request.typed);
        } catch (IllegalArgumentException error) {
            return Reason.UNREADABLE;
        }
        if (request.typed.indexOf('\0') >= 0) {
            return Reason.UNREADABLE;
        }
        if (Choice.denies(blocklists, prefix)) {
            return Reason.DENIED;
        }
        Choice choice = new Choice(request.typed, prefix, request.count, blocklists);
        Reason reason = askModel(state, last, prefix, choice, request, call);
        boolean full = choice.isFull();
        fillUp(choice, prefix, request.count);
        list.addAll(choice.suggestions);
        if (full) {
            return null;
        }
        boolean lacking = reason == Reason.FEW || reason == Reason.DOUBTFUL;
        return choice.denied && !choice.isFull() && lacking ? Reason.FEW_ALLOWED : reason;
    }

    /** Adds what the model gives, with what the lists add to it; returns why there is no more of it. */
    private Reason askModel(Map<String, Engine.Value> state, String last, String prefix, Choice choice, Request request,
            Call call) throws SuggesterException {
        Search.Found found;
        try {
            found = search.endings(state, prefix, request.count, request.floor(decoding, prefix), call);
        } catch (Call.Ended ended) {
            return ended.reason;
        }
        if (found == null) {
            return Reason.TOO_LONG;
        }
        Lists.Mixing mixing = decoding.mixing(prefix);
        if (mixing.isOff()) {
            for (Search.Ending ending : found.endings) {
                choice.add(ending.text, ending.logProbability, Suggestion.Source.MODEL);
            }
        } else {
            Map<String, Double> model = new LinkedHashMap<>();
            for (Search.Ending ending : found.endings) {
                model.put(ending.text, ending.logProbability);
            }
            Lists.Offer popular = Lists.popular(completions, prefix, request.count);
            Lists.Offer followed = Lists.followers(followers, last, prefix, request.count);
            for (Lists.Scored scored : Lists.mix(model, popular, followed, mixing)) {
                choice.add(scored.text, scored.score, scored.source);
            }
        }
        return found.doubtful ? Reason.DOUBTFUL : Reason.FEW;
    }

    /** Adds popular queries until the list is full or there are no more. */
    private void fillUp(Choice choice, String prefix, int count) {
        // At most the echo and what the model gave are left out, unless the block list takes more.
        int seen = 0;
        int wanted = count + 1;
        while (!choice.isFull()) {
            List<Completions.Entry> found = completions.top(prefix, wanted);
            for (Completions.Entry entry : found.subList(seen, found.size())) {
                double score = Math.log((double) entry.count / completions.total);
                choice.add(entry.query, score, Suggestion.Source.COMPLETIONS);
            }
            if (found.size() < wanted) {
                return;
            }
            seen = wanted;
            wanted *= 2;
        }
    }
}
