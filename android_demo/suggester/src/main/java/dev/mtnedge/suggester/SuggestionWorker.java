package dev.mtnedge.suggester;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * Opens a bundle and answers key presses on one thread of its own: no method here ever waits for the model.
 *
 * <p>Each request has a number. A newer one ends the one that is being answered, and an answer whose number is not the
 * newest is never delivered. Queries are added to the session in their order, before any later request.
 */
public final class SuggestionWorker implements AutoCloseable {
    /** Opens a suggester; called once, on the worker's thread. */
    public interface Opener {
        /** Gives the suggester, which the worker then owns and closes. */
        Suggester open() throws SuggesterException;
    }

    /** Gets the answer of one request, on the executor that the worker was given. */
    public interface Callback {
        /** The list, unless a newer request came. */
        void onSuggestions(SuggestResult result);

        /**
         * Why there is none. Of a model that failed, the next request may be answered; a bundle that could not be opened
         * stays closed: make another worker.
         */
        void onFault(SuggesterException fault);
    }

    /** What the thread does with the session. */
    private interface Step {
        void on(Session session) throws SuggesterException;
    }

    private final Opener opener;
    private final Executor executor;
    private final Object lock = new Object();
    /** What to do with the session before the next request. */
    private final Queue<Step> steps = new ArrayDeque<>();
    private long newest;
    private Request wanted;
    private Callback waiting;
    private Call running = new Call();
    private boolean closed;
    final Thread thread;

    /**
     * Starts the thread, which opens the bundle at once.
     *
     * @param opener for example {@code () -> Suggester.open(source)}.
     * @param executor runs the callbacks: on Android {@code new Handler(Looper.getMainLooper())::post}.
     */
    public SuggestionWorker(Opener opener, Executor executor) {
        this.opener = opener;
        this.executor = executor;
        thread = new Thread(this::live, "mtn-edge suggestions");
        thread.setDaemon(true);
        thread.start();
    }

    /** Asks for a list; whatever was asked before is forgotten. */
    public void request(Request request, Callback callback) {
        synchronized (lock) {
            forget();
            wanted = request;
            waiting = callback;
            lock.notifyAll();
        }
    }

    /** Asks for {@code count} suggestions for a typed text. */
    public void request(String typed, int count, Callback callback) {
        request(Request.of(typed, count), callback);
    }

    /** Adds a query that was issued to the session. */
    public void append(String query) {
        step(session -> session.append(query));
    }

    /** Begins a new session (see {@link Session#begin}). */
    public void begin() {
        step(Session::begin);
    }

    /** Forgets the request that is not answered yet: its callback will not be called. */
    public void cancel() {
        synchronized (lock) {
            forget();
        }
    }

    /** Forgets everything, ends the thread and closes the suggester, without waiting for either. */
    @Override
    public void close() {
        synchronized (lock) {
            forget();
            steps.clear();
            closed = true;
            lock.notifyAll();
        }
    }

    private void step(Step step) {
        synchronized (lock) {
            steps.add(step);
            lock.notifyAll();
        }
    }

    /** Under the lock. */
    private void forget() {
        newest++;
        wanted = null;
        waiting = null;
        running.end(Reason.STALE);
    }

    private void live() {
        Suggester suggester = null;
        Session session = null;
        SuggesterException fault = null;
        try {
            suggester = opener.open();
            session = suggester.session();
        } catch (SuggesterException error) {
            fault = error;
        } catch (RuntimeException | OutOfMemoryError error) {
            fault = failed(error);
        }
        try {
            while (work(session, fault)) {
                // until the worker is closed
            }
        } finally {
            if (suggester != null) {
                suggester.close();
            }
        }
    }

    /** Does the next thing; returns whether there may be another. */
    private boolean work(Session session, SuggesterException fault) {
        Step step;
        Request request;
        Callback callback;
        Call call = new Call();
        long number;
        synchronized (lock) {
            while (!closed && steps.isEmpty() && wanted == null) {
                try {
                    lock.wait();
                } catch (InterruptedException error) {
                    return false;
                }
            }
            if (closed) {
                return false;
            }
            step = steps.poll();
            request = wanted;
            callback = waiting;
            number = newest;
            if (step == null) {
                wanted = null;
                waiting = null;
                running = call;
            }
        }
        if (step == null) {
            answer(session, fault, request, callback, call, number);
        } else if (session != null) {
            take(step, session);
        }
        return true;
    }

    private void take(Step step, Session session) {
        try {
            step.on(session);
        } catch (SuggesterException | RuntimeException | OutOfMemoryError error) {
            // A query that cannot be read is left out: the session stays as it was, and typing goes on.
        }
    }

    private void answer(Session session, SuggesterException fault, Request request, Callback callback, Call call,
            long number) {
        SuggestResult result = null;
        SuggesterException found = fault;
        if (fault == null) {
            try {
                result = session.suggest(request, call);
            } catch (SuggesterException error) {
                found = error;
            } catch (OutOfMemoryError error) {
                found = failed(error);
            }
        }
        SuggestResult list = result;
        SuggesterException why = found;
        try {
            executor.execute(() -> {
                if (isNewest(number) && list != null) {
                    callback.onSuggestions(list);
                } else if (isNewest(number)) {
                    callback.onFault(why);
                }
            });
        } catch (RejectedExecutionException error) {
            // It is shut down: nobody listens any more.
        }
    }

    private boolean isNewest(long number) {
        synchronized (lock) {
            return number == newest;
        }
    }

    private static SuggesterException failed(Throwable error) {
        return new SuggesterException("failed", "the bundle could not be used (" + error + "); take a smaller one",
                error);
    }
}
