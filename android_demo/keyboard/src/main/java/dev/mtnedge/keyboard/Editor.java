package dev.mtnedge.keyboard;

import android.icu.text.BreakIterator;
import android.os.SystemClock;
import android.text.InputType;
import android.view.KeyCharacterMap;
import android.view.KeyEvent;
import android.view.inputmethod.InputConnection;

/** What keys do to the text of a field. */
final class Editor {
    /** Characters of a line beyond which it is no query any more. */
    private static final int LONGEST_LINE = 200;
    /** Characters in which the last one that a user sees is looked for. */
    private static final int LONGEST_CHARACTER = 64;

    /** The line that the cursor is in. */
    static final class Line {
        final String before;
        final String after;

        Line(String before, String after) {
            this.before = before;
            this.after = after;
        }
    }

    private final InputConnection connection;

    Editor(InputConnection connection) {
        this.connection = connection;
    }

    void type(String text) {
        connection.commitText(text, 1);
    }

    /** Takes what is selected away, or what the user sees as the last character. */
    void delete(Field field) {
        CharSequence selected = connection.getSelectedText(0);
        CharSequence before = connection.getTextBeforeCursor(LONGEST_CHARACTER, 0);
        if (field.inputType == InputType.TYPE_NULL) {  // it takes nothing but keys
            press(KeyEvent.KEYCODE_DEL);
        } else if (selected != null && selected.length() > 0) {
            connection.commitText("", 1);
        } else if (before != null && before.length() > 0) {
            connection.deleteSurroundingText(lastCharacter(before.toString()), 0);
        } else {  // nothing before the cursor, or a field that does not tell
            press(KeyEvent.KEYCODE_DEL);
        }
    }

    void enter(Field field) {
        if (!field.breaksLines) {
            connection.performEditorAction(field.action);
        } else if (field.hasLines()) {
            connection.commitText("\n", 1);
        } else {
            press(KeyEvent.KEYCODE_ENTER);
        }
    }

    /** Whether the next letter is to be a capital. */
    boolean wantsCapital(Field field) {
        return connection.getCursorCapsMode(field.inputType) != 0;
    }

    /** The line that the cursor is in; null when it cannot be told or is too long for a query. */
    Line line() {
        CharSequence before = connection.getTextBeforeCursor(LONGEST_LINE, 0);
        CharSequence after = connection.getTextAfterCursor(LONGEST_LINE, 0);
        if (before == null || after == null) {
            return null;
        }
        String left = before.toString();
        String right = after.toString();
        left = left.substring(left.lastIndexOf('\n') + 1);
        right = right.indexOf('\n') < 0 ? right : right.substring(0, right.indexOf('\n'));
        return left.length() + right.length() >= LONGEST_LINE ? null : new Line(left, right);
    }

    /** All of the line that the cursor is in, with what is selected; null as of {@link #line}. */
    String wholeLine() {
        Line line = line();
        CharSequence selected = connection.getSelectedText(0);
        return line == null ? null : line.before + (selected == null ? "" : selected) + line.after;
    }

    /** Writes a text in the place of the line that the cursor is in, in one step for the app. */
    void replaceLine(String text) {
        connection.beginBatchEdit();
        try {
            Line line = line();
            if (line != null) {
                connection.finishComposingText();
                connection.deleteSurroundingText(line.before.length(), line.after.length());
                connection.commitText(text, 1);
            }
        } finally {
            connection.endBatchEdit();
        }
    }

    /** As a key of the screen: hardware's would end the app's touch mode, which takes the first enter for itself. */
    private void press(int code) {
        long now = SystemClock.uptimeMillis();
        for (int action : new int[] {KeyEvent.ACTION_DOWN, KeyEvent.ACTION_UP}) {
            connection.sendKeyEvent(new KeyEvent(now, now, action, code, 0, 0, KeyCharacterMap.VIRTUAL_KEYBOARD, 0,
                    KeyEvent.FLAG_SOFT_KEYBOARD | KeyEvent.FLAG_KEEP_TOUCH_MODE));
        }
    }

    private static int lastCharacter(String text) {
        BreakIterator characters = BreakIterator.getCharacterInstance();
        characters.setText(text);
        int end = characters.last();
        return end - characters.previous();
    }
}
