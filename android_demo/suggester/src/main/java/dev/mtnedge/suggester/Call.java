package dev.mtnedge.suggester;

/** One request, which a deadline or another thread can end while it runs. */
final class Call {
    /** The request was ended. */
    static final class Ended extends Exception {
        private static final long serialVersionUID = 1L;
        final Reason reason;

        Ended(Reason reason) {
            super(reason.sentence(), null, false, false);
            this.reason = reason;
        }
    }

    private Reason reason;
    private Runnable stop;

    /** Ends the request, from any thread; the first reason counts. */
    synchronized void end(Reason why) {
        if (reason == null) {
            reason = why;
            if (stop != null) {
                stop.run();
            }
        }
    }

    /** Throws once the request was ended. */
    synchronized void check() throws Ended {
        if (reason != null) {
            throw new Ended(reason);
        }
    }

    /** Has {@code work} stopped by {@code stop} when the request is ended, at once if it was. */
    synchronized void attach(Runnable how) {
        stop = how;
        if (reason != null) {
            how.run();
        }
    }

    /** Forgets what {@link #attach} was given. */
    synchronized void detach() {
        stop = null;
    }
}
