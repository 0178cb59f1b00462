package dev.mtnedge.keyboard;

import android.text.InputType;
import android.view.inputmethod.EditorInfo;

/** What a text field wants of a keyboard. Never changes. */
final class Field {
    /** What no field wants: before there is one. */
    static final Field NONE = new Field(new EditorInfo());

    /** Whether nothing may be suggested here nor kept from here. */
    final boolean isPrivate;
    /** The page to begin with. */
    final Page firstPage;
    /** One of {@code EditorInfo.IME_ACTION_*} or the field's own; not in force when {@link #breaksLines}. */
    final int action;
    /** The field's own words for its action, or null. */
    final CharSequence actionLabel;
    /** Whether enter begins a new line. */
    final boolean breaksLines;
    /** As of {@link EditorInfo#inputType}. */
    final int inputType;

    Field(EditorInfo info) {
        inputType = info.inputType;
        isPrivate = isPrivate(info);
        firstPage = firstPage(info.inputType & InputType.TYPE_MASK_CLASS);
        actionLabel = info.actionLabel;
        action = actionLabel != null ? info.actionId : info.imeOptions & EditorInfo.IME_MASK_ACTION;
        breaksLines = (info.imeOptions & EditorInfo.IME_FLAG_NO_ENTER_ACTION) != 0
                || actionLabel == null && action == EditorInfo.IME_ACTION_NONE;
    }

    /** Whether enter issues what was typed as a query, rather than sending a message or going on in a form. */
    boolean issuesQueries() {
        return !isPrivate && !breaksLines && action != EditorInfo.IME_ACTION_SEND
                && action != EditorInfo.IME_ACTION_NEXT && action != EditorInfo.IME_ACTION_PREVIOUS;
    }

    /** Whether its text may have several lines. */
    boolean hasLines() {
        return (inputType & InputType.TYPE_MASK_CLASS) == InputType.TYPE_CLASS_TEXT
                && (inputType & InputType.TYPE_TEXT_FLAG_MULTI_LINE) != 0;
    }

    private static boolean isPrivate(EditorInfo info) {
        int type = info.inputType;
        return (info.imeOptions & EditorInfo.IME_FLAG_NO_PERSONALIZED_LEARNING) != 0
                || (type & InputType.TYPE_MASK_CLASS) != InputType.TYPE_CLASS_TEXT  // numbers, dates, terminals
                || (type & InputType.TYPE_TEXT_FLAG_NO_SUGGESTIONS) != 0
                || isPersonal(type & InputType.TYPE_MASK_VARIATION);
    }

    private static boolean isPersonal(int variation) {
        switch (variation) {
            case InputType.TYPE_TEXT_VARIATION_PASSWORD:
            case InputType.TYPE_TEXT_VARIATION_VISIBLE_PASSWORD:
            case InputType.TYPE_TEXT_VARIATION_WEB_PASSWORD:
            case InputType.TYPE_TEXT_VARIATION_EMAIL_ADDRESS:
            case InputType.TYPE_TEXT_VARIATION_WEB_EMAIL_ADDRESS:
            case InputType.TYPE_TEXT_VARIATION_PERSON_NAME:
            case InputType.TYPE_TEXT_VARIATION_POSTAL_ADDRESS:
                return true;
            default:
                return false;
        }
    }

    private static Page firstPage(int kind) {
        switch (kind) {
            case InputType.TYPE_CLASS_NUMBER:
            case InputType.TYPE_CLASS_PHONE:
                return Page.NUMBERS;
            case InputType.TYPE_CLASS_DATETIME:
                return Page.SYMBOLS;
            default:
                return Page.LETTERS;
        }
    }
}
