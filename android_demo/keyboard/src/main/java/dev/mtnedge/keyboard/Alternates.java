package dev.mtnedge.keyboard;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What a long press on a key offers, the nearest first. */
final class Alternates {
    private static final Map<String, List<String>> ALL = new HashMap<>();

    static {
        for (String line : new String[] {
            "q 1", "w 2 ŵ", "e 3 é è ê ë ē ė ę", "r 4 ř", "t 5 þ ť ţ", "y 6 ý ÿ", "u 7 ú ù û ü ū ů", "i 8 í ì î ï ī į",
            "o 9 ó ò ô ö õ ø ō œ", "p 0", "a á à â ä æ ã å ā ą", "s ß š ś ş", "d ð ď đ", "g ğ", "h ħ", "k ķ",
            "l ł ľ ļ", "z ž ź ż", "c ç ć č", "n ñ ń ň", ". ? ! : ; … @ #", ", ' \" - ( ) /", "$ € £ ¥ ₹ ¢ ₩",
            "- – — ·", "+ ± * #", "? ¿ ‽", "! ¡", "\" “ ” „ « »", "' ‘ ’ ‚ ‹ ›", "( [ { <", ") ] } >", "* † ‡ ★",
            "1 ¹ ½ ⅓ ¼", "2 ² ⅔", "3 ³ ¾", "0 ∅", "% ‰", "= ≠ ≈ ∞", "< ≤ «", "> ≥ »", "/ \\ ÷", "& §",
            "👍 👍🏻 👍🏽 👍🏿", "👎 👎🏻 👎🏽 👎🏿", "👏 👏🏻 👏🏽 👏🏿", "🙏 🙏🏻 🙏🏽 🙏🏿", "💪 💪🏻 💪🏽 💪🏿", "👋 👋🏻 👋🏽 👋🏿",
        }) {
            String[] words = line.split(" ");
            ALL.put(words[0], Collections.unmodifiableList(Arrays.asList(words).subList(1, words.length)));
        }
    }

    private Alternates() {}

    static List<String> of(Key key, boolean upper) {
        List<String> found = ALL.getOrDefault(key.kind == Key.Kind.TEXT ? key.text : "", Collections.emptyList());
        if (!upper) {
            return found;
        }
        List<String> capitals = new ArrayList<>();
        for (String text : found) {
            String capital = text.toUpperCase(Locale.ROOT);
            capitals.add(capital.length() == text.length() ? capital : text);  // ß has none of its own
        }
        return capitals;
    }

    /** The digit in the corner of a letter; empty for keys without one. */
    static String hint(Key key) {
        List<String> found = of(key, false);
        boolean digit = !found.isEmpty() && Character.isDigit(found.get(0).charAt(0));
        return digit && Character.isLetter(key.text.charAt(0)) ? found.get(0) : "";
    }
}
