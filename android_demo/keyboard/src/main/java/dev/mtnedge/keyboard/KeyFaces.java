package dev.mtnedge.keyboard;

import android.content.Context;
import android.view.inputmethod.EditorInfo;

/** What stands on the keys, and how they are called aloud. */
final class KeyFaces {
    /** What enter does. */
    private enum Enter {
        BREAK(EditorInfo.IME_ACTION_NONE, R.drawable.keyboard_enter, R.string.keyboard_enter),
        GO(EditorInfo.IME_ACTION_GO, R.drawable.keyboard_go, R.string.keyboard_go),
        SEARCH(EditorInfo.IME_ACTION_SEARCH, R.drawable.keyboard_search, R.string.keyboard_search),
        SEND(EditorInfo.IME_ACTION_SEND, R.drawable.keyboard_send, R.string.keyboard_send),
        NEXT(EditorInfo.IME_ACTION_NEXT, R.drawable.keyboard_next, R.string.keyboard_next),
        PREVIOUS(EditorInfo.IME_ACTION_PREVIOUS, R.drawable.keyboard_previous, R.string.keyboard_previous),
        DONE(EditorInfo.IME_ACTION_DONE, R.drawable.keyboard_done, R.string.keyboard_done);

        private final int action;
        private final int icon;
        private final int name;

        Enter(int action, int icon, int name) {
            this.action = action;
            this.icon = icon;
            this.name = name;
        }

        static Enter of(Field field) {
            for (Enter each : values()) {
                if (!field.breaksLines && field.action == each.action) {
                    return each;
                }
            }
            return BREAK;
        }
    }

    private KeyFaces() {}

    /** The drawable on a key; 0 for keys with a text. */
    static int icon(Key key, KeyboardState state, Field field) {
        switch (key.kind) {
            case SHIFT:
                switch (state.shift()) {
                    case OFF:
                        return R.drawable.keyboard_shift;
                    case ONCE:
                        return R.drawable.keyboard_shift_once;
                    default:
                        return R.drawable.keyboard_shift_locked;
                }
            case DELETE:
                return R.drawable.keyboard_delete;
            case ENTER:
                return field.actionLabel == null ? Enter.of(field).icon : 0;
            case PAGE:
                return key.page() == Page.EMOJI && !state.page().hasEmoji() ? R.drawable.keyboard_emoji : 0;
            case GLOBE:
                return R.drawable.keyboard_globe;
            default:
                return 0;
        }
    }

    /** The text on a key without an icon. */
    static String label(Key key, KeyboardState state, Field field, Context context) {
        switch (key.kind) {
            case SPACE:
                return context.getString(R.string.keyboard_space_mark);
            case PAGE:
                return key.page().label;
            case ENTER:
                return field.actionLabel.toString();
            default:
                return state.textOf(key);
        }
    }

    /** For people who hear the keyboard. */
    static String spoken(Key key, KeyboardState state, Field field, Context context) {
        switch (key.kind) {
            case SPACE:
                return context.getString(R.string.keyboard_space);
            case SHIFT:
                return context.getString(state.shift() == KeyboardState.Shift.OFF ? R.string.keyboard_shift
                        : state.shift() == KeyboardState.Shift.ONCE ? R.string.keyboard_shift_once
                        : R.string.keyboard_shift_locked);
            case DELETE:
                return context.getString(R.string.keyboard_delete);
            case GLOBE:
                return context.getString(R.string.keyboard_globe);
            case PAGE:
                return context.getString(key.page().name);
            case ENTER:
                return field.actionLabel != null
                        ? field.actionLabel.toString() : context.getString(Enter.of(field).name);
            default:
                return state.textOf(key);
        }
    }
}
