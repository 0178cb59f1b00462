package dev.mtnedge.keyboard;

import android.os.SystemClock;
import dev.mtnedge.suggester.SuggestionWorker;
import java.util.Objects;
import java.util.concurrent.Executor;

/**
 * The model and the queries of this session, which are nowhere but in memory. No method waits for the model; all are
 * for the main thread.
 */
final class Suggestions {
    static final int COUNT = 5;
    /** Milliseconds without a query after which a new session begins, as in the logs that the model learnt from. */
    private static final long GAP = 30 * 60 * 1000;

    private final SuggestionWorker.Opener opener;
    private final Executor executor;
    private final SuggestionWorker.Callback callback;
    private SuggestionWorker worker;
    private String bundle;
    private boolean history;
    /** What a list was asked for and is still wanted for; null for nothing. */
    private String asked;
    /** When the session last grew or began, on the clock that goes on while the phone sleeps. */
    private long active;

    /**
     * Nothing is opened yet.
     *
     * @param executor runs {@code callback} on the main thread.
     */
    Suggestions(SuggestionWorker.Opener opener, Executor executor, SuggestionWorker.Callback callback) {
        this.opener = opener;
        this.executor = executor;
        this.callback = callback;
    }

    /** Opens the model when it is wanted and another one is open or none; lets go of it when it is not wanted. */
    void use(boolean wanted, String chosen) {
        if (!wanted) {
            close();
        } else if (worker == null || !Objects.equals(chosen, bundle)) {
            bundle = chosen;
            reopen();
        }
    }

    boolean areOn() {
        return worker != null;
    }

    /** Asks for a list, once: a field tells of each change when the keys have told of it already. */
    void ask(String typed) {
        if (worker != null) {
            beginIfAway();
            if (!typed.equals(asked)) {
                asked = typed;
                worker.request(typed, COUNT, callback);  // a late list is still one for what is typed
            }
        }
    }

    /** A query was issued: it joins the session. */
    void issued(String query) {
        if (worker != null && !query.trim().isEmpty()) {
            beginIfAway();
            worker.append(query);
            asked = null;
            history = true;
            active = SystemClock.elapsedRealtime();
        }
    }

    /** No answer is wanted any more. */
    void cancel() {
        asked = null;
        if (worker != null) {
            worker.cancel();
        }
    }

    /** Whether there is anything to forget. */
    boolean hasHistory() {
        return history;
    }

    /** Forgets all queries, and whatever the model made of them: a new worker knows nothing. */
    void reopen() {
        close();
        worker = new SuggestionWorker(opener, executor);
    }

    void close() {
        if (worker != null) {
            worker.close();
            worker = null;
        }
        asked = null;
        history = false;
    }

    private void beginIfAway() {
        long now = SystemClock.elapsedRealtime();
        if (now - active > GAP) {
            worker.begin();
            asked = null;
            active = now;
        }
    }
}
