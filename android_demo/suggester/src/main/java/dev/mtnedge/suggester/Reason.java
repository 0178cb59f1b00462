package dev.mtnedge.suggester;

/** Why a list is short, or filled up from the popular queries. */
public enum Reason {
    /** No suggestions were asked for. */
    NOTHING_ASKED("no suggestions were asked for"),
    /** The typed text is no text. */
    UNREADABLE("the typed text holds a lone surrogate or a NUL character"),
    /** The typed text holds a denied word. */
    DENIED("the typed text is on the block list"),
    /** The typed text is beyond the model's reach. */
    TOO_LONG("the typed text is longer than the model can write"),
    /** A newer request, or the end of the suggester, ended this one. */
    STALE("a newer key press came before the model had answered"),
    /** The deadline passed. */
    TOO_LATE("the deadline passed before the model had answered"),
    /** What else the model found is below the confidence floor. */
    DOUBTFUL("the model finds nothing more that is probable enough"),
    /** The model found no more. */
    FEW("the model has fewer continuations than were asked for"),
    /** The block list took some. */
    FEW_ALLOWED("the block list denies the rest");

    private final String sentence;

    Reason(String sentence) {
        this.sentence = sentence;
    }

    /** The reason in words, the same as {@code mtn-edge suggest} prints. */
    public String sentence() {
        return sentence;
    }
}
