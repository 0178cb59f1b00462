package dev.mtnedge.keyboard;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The pages of the keyboard, as they look: a line for a row, a word for a key. A word in capitals is a function or the
 * page it leads to; anything else is typed as it stands. The globe is there only where the system wants it.
 */
enum Page {
    LETTERS("ABC", R.string.keyboard_letters, 10,
            "q w e r t y u i o p",
            "a s d f g h j k l",
            "SHIFT z x c v b n m DELETE",
            "SYMBOLS GLOBE , EMOJI SPACE . ENTER"),
    SYMBOLS("?123", R.string.keyboard_symbols, 10,
            "1 2 3 4 5 6 7 8 9 0",
            "@ # $ _ & - + ( ) /",
            "MORE * \" ' : ; ! ? DELETE",
            "LETTERS GLOBE , EMOJI SPACE . ENTER"),
    MORE("=\\<", R.string.keyboard_more, 10,
            "~ ` | • √ π ÷ × § ∆",
            "£ € ¥ ¢ ^ ° = { } \\",
            "SYMBOLS % © ® ™ ✓ [ ] DELETE",
            "LETTERS GLOBE < EMOJI SPACE > ENTER"),
    NUMBERS("123", R.string.keyboard_numbers, 4,
            "1 2 3 DELETE",
            "4 5 6 -",
            "7 8 9 +",
            "SYMBOLS GLOBE 0 . ENTER"),
    EMOJI("🙂", R.string.keyboard_emoji, 10,
            "😀 😂 🤣 😊 😍 😘 😎 🤔 😉 😅",
            "🙂 😢 😭 😡 😱 😴 🤗 🙄 😏 🤓",
            "PLACES 👍 👎 👏 🙏 💪 👋 👀 DELETE",
            "LETTERS GLOBE SPACE ENTER"),
    PLACES("🏡", R.string.keyboard_next_emoji, 10,
            "🏠 🏡 🏢 🏥 🏦 🏨 🏫 🏪 ⛪ 🏰",
            "🚗 🚕 🚌 🚆 ✈️ 🚀 🚢 🚲 ⛽ 🗺️",
            "FOOD ☀️ ☁️ ☔ ❄️ 🌙 🌊 🌳 DELETE",
            "LETTERS GLOBE SPACE ENTER"),
    FOOD("🍕", R.string.keyboard_next_emoji, 10,
            "🍎 🍌 🍓 🍇 🥕 🌽 🍞 🧀 🍕 🍔",
            "🍟 🍣 🍜 🍰 🍪 🍫 ☕ 🍵 🍺 🍷",
            "THINGS 🐶 🐱 🐭 🐻 🐦 🐟 🦋 DELETE",
            "LETTERS GLOBE SPACE ENTER"),
    THINGS("🎁", R.string.keyboard_next_emoji, 10,
            "❤️ 💔 💯 🔥 ⭐ ✨ 🎉 🎁 🎂 🎈",
            "⚽ 🏀 🎾 🎮 🎵 🎸 🎬 📷 📱 💻",
            "EMOJI 💡 📚 💰 ⏰ 🔑 🔒 ✅ DELETE",
            "LETTERS GLOBE SPACE ENTER");

    /** How many rows each page has. */
    static final int ROWS = 4;

    /** On the key that leads here. */
    final String label;
    /** The spoken name of that key. */
    final int name;
    /** Width in keys. */
    final int columns;
    private final String[] lines;

    Page(String label, int name, int columns, String... lines) {
        this.label = label;
        this.name = name;
        this.columns = columns;
        this.lines = lines;
    }

    /** Whether letters with shift are here. */
    boolean hasLetters() {
        return this == LETTERS;
    }

    boolean hasEmoji() {
        return ordinal() >= EMOJI.ordinal();
    }

    /** The keys, from the top, with or without the globe. */
    List<List<Key>> rows(boolean globe) {
        List<List<Key>> rows = new ArrayList<>();
        for (String line : lines) {
            rows.add(row((globe ? line : line.replace("GLOBE ", "")).split(" ")));
        }
        return rows;
    }

    /** What the others leave of the width is the blank's, or where there is none, that of the key to another page. */
    private List<Key> row(String[] words) {
        Key.Kind elastic = Arrays.asList(words).contains("SPACE") ? Key.Kind.SPACE : Key.Kind.PAGE;
        float left = columns;
        for (String word : words) {
            left -= kind(word) == elastic ? 0 : width(word);
        }
        List<Key> keys = new ArrayList<>();
        for (String word : words) {
            Key.Kind kind = kind(word);
            keys.add(new Key(kind, kind == Key.Kind.SPACE ? " " : word, kind == elastic ? left : width(word)));
        }
        return keys;
    }

    private float width(String word) {
        Key.Kind kind = kind(word);
        if (columns < LETTERS.columns) {
            return kind == Key.Kind.GLOBE ? 0.5f : 1;  // of a wide column
        }
        boolean narrow = kind == Key.Kind.TEXT || kind == Key.Kind.GLOBE || word.equals(EMOJI.name());
        return narrow ? 1 : 1.5f;
    }

    private static Key.Kind kind(String word) {
        if (!word.matches("[A-Z]{2,}")) {
            return Key.Kind.TEXT;
        }
        boolean leads = Arrays.stream(values()).anyMatch(page -> page.name().equals(word));
        return leads ? Key.Kind.PAGE : Key.Kind.valueOf(word);
    }
}
