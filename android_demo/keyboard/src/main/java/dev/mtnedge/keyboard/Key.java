package dev.mtnedge.keyboard;

/** One key of a page: what it does. Never changes. */
final class Key {
    /** What a key does. */
    enum Kind {
        TEXT, SPACE, SHIFT, DELETE, ENTER, PAGE, GLOBE;

        /** Whether it acts when a finger comes, and not when it leaves. */
        boolean actsAtOnce() {
            return this == SHIFT || this == DELETE;
        }

        /** Whether a long press shows the phone's keyboards. */
        boolean choosesKeyboard() {
            return this == SPACE || this == GLOBE;
        }
    }

    final Kind kind;
    /** What a text key types, in small letters; of a page key the name of the {@link Page}. */
    final String text;
    /** In columns of its page. */
    final float width;

    Key(Kind kind, String text, float width) {
        this.kind = kind;
        this.text = text;
        this.width = width;
    }

    /** Where a page key leads. */
    Page page() {
        return Page.valueOf(text);
    }
}
