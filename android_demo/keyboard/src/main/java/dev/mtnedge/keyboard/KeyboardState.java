package dev.mtnedge.keyboard;

import java.util.Locale;

/** Which page is up, shift, and the globe. It outlives the views, so that turning the phone changes none of them. */
final class KeyboardState {
    /** How long after a tap on shift a second one locks it, in milliseconds. */
    private static final long DOUBLE_TAP = 350;

    /** The capitals. */
    enum Shift { OFF, ONCE, LOCKED }

    private Page page = Page.LETTERS;
    private Page home = Page.LETTERS;
    private Shift shift = Shift.OFF;
    private boolean globe;
    /** Whether the field asked for the capital, not the user. */
    private boolean automatic;
    private long tapped = -DOUBLE_TAP;

    Page page() {
        return page;
    }

    Shift shift() {
        return shift;
    }

    /** Whether there is a key to the next keyboard. */
    boolean hasGlobe() {
        return globe;
    }

    void offerGlobe(boolean offered) {
        globe = offered;
    }

    boolean isUpper() {
        return page.hasLetters() && shift != Shift.OFF;
    }

    /** Another field begins. */
    void reset(Page first) {
        page = first;
        home = first;
        shift = Shift.OFF;
        automatic = false;
    }

    void show(Page other) {
        page = other;
    }

    /** Shift was tapped at a time in milliseconds. */
    void tapShift(long now) {
        boolean twice = now - tapped < DOUBLE_TAP;
        if (shift == Shift.LOCKED) {
            shift = Shift.OFF;
        } else if (twice) {
            shift = Shift.LOCKED;
        } else {
            shift = shift == Shift.OFF ? Shift.ONCE : Shift.OFF;
        }
        automatic = false;
        tapped = twice ? now - DOUBLE_TAP : now;
    }

    void lockShift() {
        shift = Shift.LOCKED;
        automatic = false;
    }

    /** The field does or does not begin a sentence, a word or all capitals here; the user's own shift stays. */
    void capitals(boolean wanted) {
        if (wanted && shift == Shift.OFF || !wanted && shift == Shift.ONCE && automatic) {
            shift = wanted ? Shift.ONCE : Shift.OFF;
            automatic = wanted;
        }
    }

    /** Something was typed. */
    void typed(String text) {
        if (shift == Shift.ONCE && page.hasLetters()) {
            shift = Shift.OFF;
            automatic = false;
        }
        if (text.equals(" ") && home.hasLetters() && !page.hasEmoji()) {
            page = home;  // a symbol was wanted, and now the next word
        }
    }

    /** What a key types now. */
    String textOf(Key key) {
        return isUpper() ? key.text.toUpperCase(Locale.ROOT) : key.text;
    }
}
