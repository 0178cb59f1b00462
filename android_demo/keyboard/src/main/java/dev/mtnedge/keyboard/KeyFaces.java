package dev.mtnedge.keyboard;

import android.content.Context;
import android.view.inputmethod.EditorInfo;

/** What stands on the keys, and how they are called aloud. */
final class KeyFaces {
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
                return field.actionLabel == null ? enterIcon(field) : 0;
            case PAGE:
                return key.page() == Page.EMOJI && !state.page().hasEmoji() ? R.drawable.keyboard_emoji : 0;
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
            case PAGE:
                return context.getString(key.page().name);
            case ENTER:
                return field.actionLabel != null ? field.actionLabel.toString() : context.getString(enterName(field));
            default:
                return state.textOf(key);
        }
    }

    private static int enterIcon(Field field) {
        switch (field.breaksLines ? EditorInfo.IME_ACTION_NONE : field.action) {
            case EditorInfo.IME_ACTION_SEARCH:
                return R.drawable.keyboard_search;
            case EditorInfo.IME_ACTION_GO:
                return R.drawable.keyboard_go;
            case EditorInfo.IME_ACTION_SEND:
                return R.drawable.keyboard_send;
            case EditorInfo.IME_ACTION_NEXT:
                return R.drawable.keyboard_next;
            case EditorInfo.IME_ACTION_PREVIOUS:
                return R.drawable.keyboard_previous;
            case EditorInfo.IME_ACTION_DONE:
                return R.drawable.keyboard_done;
            default:
                return R.drawable.keyboard_enter;
        }
    }

    private static int enterName(Field field) {
        switch (field.breaksLines ? EditorInfo.IME_ACTION_NONE : field.action) {
            case EditorInfo.IME_ACTION_SEARCH:
                return R.string.keyboard_search;
            case EditorInfo.IME_ACTION_GO:
                return R.string.keyboard_go;
            case EditorInfo.IME_ACTION_SEND:
                return R.string.keyboard_send;
            case EditorInfo.IME_ACTION_NEXT:
                return R.string.keyboard_next;
            case EditorInfo.IME_ACTION_PREVIOUS:
                return R.string.keyboard_previous;
            case EditorInfo.IME_ACTION_DONE:
                return R.string.keyboard_done;
            default:
                return R.string.keyboard_enter;
        }
    }
}
