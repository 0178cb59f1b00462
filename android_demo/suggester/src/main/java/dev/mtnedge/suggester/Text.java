package dev.mtnedge.suggester;

import java.nio.charset.StandardCharsets;
import java.text.Normalizer;
import java.util.Locale;

/** The normal form of query text: what the model sees (in Python: {@code mtn_edge/text.py}). */
final class Text {
    private static final int DOTTED_I = 0x130;
    private static final int DOTLESS_I = 0x131;

    private Text() {}

    /**
     * Normal form of text that is still being typed: NFKC, lower case letter by letter, control characters and runs of
     * blanks as one space, direction marks and leading blanks dropped. A final blank stays.
     *
     * @throws IllegalArgumentException {@code text} holds half a surrogate pair, which no UTF-8 text can hold.
     */
    static String normalizePrefix(String text) {
        if (isAscii(text)) {
            return singleBlanks(lower(text));
        }
        // Invisible characters go first: one between a letter and its accent would keep them from composing.
        String folded = Normalizer.normalize(visible(text), Normalizer.Form.NFKC);
        // Lower-casing may leave a sequence that composes (for example capital dotted I): normalize once more.
        return singleBlanks(Normalizer.normalize(lower(folded), Normalizer.Form.NFKC));
    }

    /** Normal form of a finished query: {@link #normalizePrefix} without the final blank. */
    static String normalize(String text) {
        String normal = normalizePrefix(text);
        return normal.endsWith(" ") ? normal.substring(0, normal.length() - 1) : normal;
    }

    /** The form in which two texts count as one: normal form without case. */
    static String fold(String text) {
        String normal = normalize(text);
        if (isAscii(normal)) {
            return normal;
        }
        StringBuilder folded = new StringBuilder(normal.length());
        for (int at = 0, code; at < normal.length(); at += Character.charCount(code)) {
            code = normal.codePointAt(at);
            // What Unicode calls case folding is this, but for Cherokee, which lower case makes equal again.
            String letter = normal.substring(at, at + Character.charCount(code));
            folded.append(code < 128 || code == DOTLESS_I ? letter : lower(letter.toUpperCase(Locale.ROOT)));
        }
        // Folding may leave letters and accents that compose: then the normal form of the result counts.
        return normal.contentEquals(folded) ? normal : normalize(folded.toString());
    }

    /** Compares by code points, as UTF-8 sorts; {@code String.compareTo} puts letters beyond U+FFFF too early. */
    static int compare(String one, String other) {
        return SortedTexts.compare(one.getBytes(StandardCharsets.UTF_8), other.getBytes(StandardCharsets.UTF_8));
    }

    static boolean isAscii(String text) {
        for (int at = 0; at < text.length(); at++) {
            if (text.charAt(at) >= 128) {
                return false;
            }
        }
        return true;
    }

    private static String visible(String text) {
        StringBuilder kept = new StringBuilder(text.length());
        for (int at = 0, code; at < text.length(); at += Character.charCount(code)) {
            code = text.codePointAt(at);
            if (code >= Character.MIN_SURROGATE && code <= Character.MAX_SURROGATE) {
                throw new IllegalArgumentException("half a surrogate pair");
            }
            if (!isInvisible(code)) {
                kept.appendCodePoint(code);
            }
        }
        return kept.toString();
    }

    /** Direction marks and the byte-order mark carry no letter; joiners do, in Persian and in emoji. */
    private static boolean isInvisible(int code) {
        return code == 0x200B || code == 0x200E || code == 0x200F || code >= 0x202A && code <= 0x202E
                || code == 0x2060 || code >= 0x2066 && code <= 0x2069 || code == 0xFEFF || code == 0xAD;
    }

    private static String lower(String text) {
        StringBuilder lowered = new StringBuilder(text.length());
        for (int at = 0, code; at < text.length(); at += Character.charCount(code)) {
            code = text.codePointAt(at);
            if (code == DOTTED_I) {
                lowered.append("i\u0307");  // the one letter that becomes two
            } else {
                lowered.appendCodePoint(Character.toLowerCase(code));
            }
        }
        return lowered.toString();
    }

    /** Each run of blanks and control characters as one space, none at the start. */
    private static String singleBlanks(String text) {
        StringBuilder kept = new StringBuilder(text.length());
        for (int at = 0; at < text.length(); at++) {
            char letter = text.charAt(at);
            if (!isBlank(letter)) {
                kept.append(letter);
            } else if (kept.length() > 0 && kept.charAt(kept.length() - 1) != ' ') {
                kept.append(' ');
            }
        }
        return kept.toString();
    }

    private static boolean isBlank(char letter) {
        return letter <= 0x20 || letter >= 0x7F && letter <= 0xA0 || letter == 0x1680
                || letter >= 0x2000 && letter <= 0x200A || letter == 0x2028 || letter == 0x2029 || letter == 0x202F
                || letter == 0x205F || letter == 0x3000;
    }
}
