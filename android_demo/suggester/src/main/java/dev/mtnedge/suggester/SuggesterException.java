package dev.mtnedge.suggester;

/** A fault with one clear sentence: what was given, the rule, what to do. */
public final class SuggesterException extends Exception {
    private static final long serialVersionUID = 1L;
    private final String code;

    SuggesterException(String code, String sentence) {
        this(code, sentence, null);
    }

    SuggesterException(String code, String sentence, Throwable cause) {
        super(sentence, cause);
        this.code = code;
    }

    /**
     * What kind of fault it is, for programs: {@code no-manifest}, {@code damaged}, {@code wrong-kind},
     * {@code newer-version}, {@code unsigned}, {@code bad-signature}, {@code bad-key}, {@code bad-manifest},
     * {@code incomplete}, {@code bad-tokenizer}, {@code bad-completions}, {@code bad-blocklist}, {@code bad-graph},
     * {@code no-runtime}, {@code bad-text}, {@code failed} (the model threw) or {@code closed}.
     */
    public String code() {
        return code;
    }
}
