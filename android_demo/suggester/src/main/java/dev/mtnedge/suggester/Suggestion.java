package dev.mtnedge.suggester;

/** One line of a list. */
public final class Suggestion {
    /** Who found a suggestion, or gave most of its probability. */
    public enum Source {
        /** The network. */
        MODEL,
        /** A list of the bundle: popular queries under the typed text, or what followed the last query. */
        COMPLETIONS
    }

    private final String text;
    private final double score;
    private final Source source;

    Suggestion(String text, double score, Source source) {
        this.text = text;
        this.score = score;
        this.source = source;
    }

    /** What was typed, character for character, and more. */
    public String text() {
        return text;
    }

    /**
     * Log-probability (nats) given the session and the typed text; below what the model gives, of the share of all
     * popular queries.
     */
    public double score() {
        return score;
    }

    /** Who found it. */
    public Source source() {
        return source;
    }

    @Override
    public String toString() {
        return text + " (" + source + " " + score + ")";
    }
}
