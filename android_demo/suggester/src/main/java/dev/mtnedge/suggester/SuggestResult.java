package dev.mtnedge.suggester;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A list of suggestions, best first: what the model gives with what the lists add to it, then popular queries. */
public final class SuggestResult {
    private final String typed;
    private final List<Suggestion> suggestions;
    private final Reason reason;
    private final double milliseconds;

    SuggestResult(String typed, List<Suggestion> suggestions, Reason reason, double milliseconds) {
        this.typed = typed;
        this.suggestions = Collections.unmodifiableList(suggestions);
        this.reason = reason;
        this.milliseconds = milliseconds;
    }

    /** What was typed. */
    public String typed() {
        return typed;
    }

    /** The list, which may be shorter than was asked for. */
    public List<Suggestion> suggestions() {
        return suggestions;
    }

    /** The list's texts. */
    public List<String> texts() {
        List<String> texts = new ArrayList<>();
        for (Suggestion suggestion : suggestions) {
            texts.add(suggestion.text());
        }
        return texts;
    }

    /** Why the list is short or filled up from the popular queries; null when the model filled it. */
    public Reason reason() {
        return reason;
    }

    /** How long it took. */
    public double milliseconds() {
        return milliseconds;
    }
}
