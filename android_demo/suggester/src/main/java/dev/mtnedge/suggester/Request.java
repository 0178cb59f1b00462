package dev.mtnedge.suggester;

/** One key press: what was typed, and what is wanted. Never changes; each method gives a new one. */
public final class Request {
    private static final int MOST = 1_000_000;
    private static final double BUNDLES_FLOOR = -1;
    private static final double NO_DEADLINE = -1;

    final String typed;
    final int count;
    private final double deadline;
    private final double floor;

    private Request(String typed, int count, double deadline, double floor) {
        this.typed = typed;
        this.count = count;
        this.deadline = deadline;
        this.floor = floor;
    }

    /**
     * A request without a deadline.
     *
     * @param typed what was typed so far, as it was typed; nothing asks for the next query.
     * @param count suggestions wanted, a million at most; fewer is an honest answer.
     * @throws IllegalArgumentException {@code count} is negative.
     */
    public static Request of(String typed, int count) {
        if (count < 0) {
            throw new IllegalArgumentException(
                    "`count` is " + count + ", and it must be at least 0; ask for 1 or more");
        }
        return new Request(typed, Math.min(count, MOST), NO_DEADLINE, BUNDLES_FLOOR);
    }

    /**
     * The same request, answered by the popular queries when the model has not answered in time.
     *
     * @param milliseconds from when the work on it begins.
     * @throws IllegalArgumentException they are negative, or no number.
     */
    public Request within(double milliseconds) {
        if (!(milliseconds >= 0)) {
            throw new IllegalArgumentException(
                    "`milliseconds` is " + milliseconds + ", and it must be at least 0; leave it out for none");
        }
        return new Request(typed, count, milliseconds, floor);
    }

    /**
     * The same request with another confidence floor than the bundle's.
     *
     * @param probability the model's suggestions that are less probable are left out; 0 lets everything pass.
     * @throws IllegalArgumentException it is no probability below 1.
     */
    public Request minProbability(double probability) {
        if (!(0 <= probability && probability < 1)) {
            throw new IllegalArgumentException("`probability` is " + probability
                    + ", and it must be at least 0 and below 1; give 0 to let everything pass");
        }
        return new Request(typed, count, deadline, probability);
    }

    boolean hasDeadline() {
        return deadline != NO_DEADLINE;
    }

    double deadlineMilliseconds() {
        return deadline;
    }

    double floor(Decoding decoding, String prefix) {
        return floor == BUNDLES_FLOOR ? decoding.minProbability(prefix) : floor;
    }
}
