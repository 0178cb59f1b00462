package dev.mtnedge.keyboard;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The pages of the keyboard, as they look: a line for a row, a word for a key. A word in capitals is a function or the
 * page it leads to; anything else is typed as it stands.
 */
enum Page {
    LETTERS("ABC", R.string.keyboard_letters, 10,
            "q w e r t y u i o p",
            "a s d f g h j k l",
            "SHIFT z x c v b n m DELETE",
            "SYMBOLS , EMOJI SPACE . ENTER"),
    SYMBOLS("?123", R.string.keyboard_symbols, 10,
            "1 2 3 4 5 6 7 8 9 0",
            "@ # $ _ & - + ( ) /",
            "MORE * \" ' : ; ! ? DELETE",
            "LETTERS , EMOJI SPACE . ENTER"),
    MORE("=\\<", R.string.keyboard_more, 10,
            "~ ` | • √ π ÷ × § ∆",
            "£ € ¥ ¢ ^ ° = { } \\",
            "SYMBOLS % © ® ™ ✓ [ ] DELETE",
            "LETTERS < EMOJI SPACE > ENTER"),
    NUMBERS("123", R.string.keyboard_numbers, 4,
            "1 2 3 DELETE",
            "4 5 6 -",
            "7 8 9 +",
            "SYMBOLS 0 . ENTER"),
    EMOJI("🙂", R.string.keyboard_emoji, 10,
            "😀 😂 🤣 😊 😍 😘 😎 🤔 😉 😅",
            "🙂 😢 😭 😡 😱 😴 🤗 🙄 😏 🤓",
            "PLACES 👍 👎 👏 🙏 💪 👋 👀 DELETE",
            "LETTERS SPACE ENTER"),
    PLACES("🏡", R.string.keyboard_next_emoji, 10,
            "🏠 🏡 🏢 🏥 🏦 🏨 🏫 🏪 ⛪ 🏰",
            "🚗 🚕 🚌 🚆 ✈️ 🚀 🚢 🚲 ⛽ 🗺️",
            "FOOD ☀️ ☁️ ☔ ❄️ 🌙 🌊 🌳 DELETE",
            "LETTERS SPACE ENTER"),
    FOOD("🍕", R.string.keyboard_next_emoji, 10,
            "🍎 🍌 🍓 🍇 🥕 🌽 🍞 🧀 🍕 🍔",
            "🍟 🍣 🍜 🍰 🍪 🍫 ☕ 🍵 🍺 🍷",
            "THINGS 🐶 🐱 🐭 🐻 🐦 🐟 🦋 DELETE",
            "LETTERS SPACE ENTER"),
    THINGS("🎁", R.string.keyboard_next_emoji, 10,
            "❤️ 💔 💯 🔥 ⭐ ✨ 🎉 🎁 🎂 🎈",
            "⚽ 🏀 🎾 🎮 🎵 🎸 🎬 📷 📱 💻",
            "EMOJI 💡 📚 💰 ⏰ 🔑 🔒 ✅ DELETE",
            "LETTERS SPACE ENTER");

    /** On the key that leads here. */
    final String label;
    /** The spoken name of that key. */
    final int name;
    /** Width in keys. */
    final int columns;
    private final String[] lines;
    private List<List<Key>> rows;

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

    /** The keys, from the top. */
    List<List<Key>> rows() {
        if (rows == null) {
            rows = new ArrayList<>();
            for (String line : lines) {
                rows.add(row(line));
            }
        }
        return rows;
    }

    private List<Key> row(String line) {
        List<Key> keys = new ArrayList<>();
        float left = columns;
        for (String word : line.split(" ")) {
            Key key = key(word);
            keys.add(key);
            left -= key.width;
        }
        for (int at = 0; at < keys.size(); at++) {
            if (keys.get(at).kind == Key.Kind.SPACE) {
                keys.set(at, new Key(Key.Kind.SPACE, " ", left));
            }
        }
        return keys;
    }

    private Key key(String word) {
        Key.Kind kind = kind(word);
        if (kind == Key.Kind.SPACE) {
            return new Key(kind, " ", 0);  // takes what the others leave
        }
        boolean wide = kind != Key.Kind.TEXT && !word.equals(EMOJI.name()) || word.equals(EMOJI.name()) && hasEmoji();
        return new Key(kind, word, wide && columns == LETTERS.columns ? 1.5f : 1);
    }

    private static Key.Kind kind(String word) {
        if (!word.matches("[A-Z]{2,}")) {
            return Key.Kind.TEXT;
        }
        boolean leads = Arrays.stream(values()).anyMatch(page -> page.name().equals(word));
        return leads ? Key.Kind.PAGE : Key.Kind.valueOf(word);
    }
}
