package dev.mtnedge.suggester;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Words and phrases that are never suggested: whole words only; anywhere in scripts without blanks between words (in
 * Python: {@code mtn_edge/runtime/blocklist.py}).
 */
final class Blocklist {
    static final String FILE = "blocklist.txt";
    static final Blocklist EMPTY = new Blocklist(new ArrayList<String>());
    private static final String HASHED = "mtn-edge blocklist of salted hashes: ";
    private static final Pattern SALT = Pattern.compile("[0-9a-f]{32}");
    private static final Pattern HASHED_LINE = Pattern.compile("([1-9][0-9]{0,8}) ([0-9a-f]{16})");
    /** Where Python's {@code splitlines} cuts. */
    private static final Pattern LINE_END = Pattern.compile("\r\n|[\n\u000B\f\r\u001C-\u001E\u0085\u2028\u2029]");
    private static final int HASH_BYTES = 8;
    /** Code points, first and last, of the scripts that write no blanks between words. */
    private static final int[][] UNSPACED = {
        {0x0E00, 0x109F}, {0x1780, 0x17FF}, {0x3005, 0x3007}, {0x3021, 0x30FF}, {0x31F0, 0x31FF}, {0x3400, 0x4DBF},
        {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F}, {0x116D0, 0x116FF},
        {0x1AFF0, 0x1B16F}, {0x20000, 0x323AF},
    };

    /** Marks that change how a letter or an emoji looks and never which one it is. */
    private static final int[][] DECORATION = {
        {0x0334, 0x0338}, {0x034F, 0x034F}, {0x115F, 0x1160}, {0x180B, 0x180F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F},
        {0xE0100, 0xE01EF},
    };

    /** Phrases as they are, or their hashes. */
    private final Set<String> marks = new HashSet<>();
    /** The numbers of words that phrases have. */
    private final Set<Integer> lengths = new TreeSet<>();
    /** Null when phrases stand there as they are. */
    private final byte[] salt;

    /** @param entries a word or phrase each. */
    Blocklist(Collection<String> entries) {
        salt = null;
        for (String entry : entries) {
            List<String> words = words(entry);
            if (!words.isEmpty()) {
                marks.add(phrase(words));
                lengths.add(words.size());
            }
        }
    }

    private Blocklist(String[] lines) {
        salt = fromHex(lines[0].substring(HASHED.length()));
        for (int at = 1; at < lines.length; at++) {
            Matcher line = HASHED_LINE.matcher(lines[at]);
            if (!line.matches()) {
                throw new IllegalArgumentException("line " + (at + 1));
            }
            lengths.add(Integer.parseInt(line.group(1)));
            marks.add(line.group(2));
        }
    }

    /**
     * Reads a list: a word or phrase on each line, or salted hashes of them.
     *
     * @throws SuggesterException a line of a hashed list is no hash.
     */
    static Blocklist read(String text) throws SuggesterException {
        String[] lines = lines(text.startsWith("\uFEFF") ? text.substring(1) : text);
        if (lines.length == 0 || !lines[0].startsWith(HASHED)) {
            return new Blocklist(Arrays.asList(lines));
        }
        try {
            return new Blocklist(lines);
        } catch (IllegalArgumentException error) {
            throw new SuggesterException("bad-blocklist", "`" + FILE + "` is a block list of hashes, and one of its"
                    + " lines is none; make the bundle again", error);
        }
    }

    /** Whether {@code text} holds a denied word or phrase. */
    boolean denies(String text) {
        if (marks.isEmpty()) {
            return false;
        }
        List<String> words = words(text);
        for (int length : lengths) {
            for (int start = 0; start + length <= words.size(); start++) {
                String phrase = phrase(words.subList(start, start + length));
                if (marks.contains(salt == null ? phrase : hash(phrase))) {
                    return true;
                }
            }
        }
        return false;
    }

    /** The runs of letters, marks and digits, folded; where no blanks are written, each letter is a word. */
    static List<String> words(String text) {
        String folded = Text.fold(text);
        StringBuilder spaced = new StringBuilder(folded.length());
        for (int at = 0, code; at < folded.length(); at += Character.charCount(code)) {
            code = folded.codePointAt(at);
            int type = Character.getType(code);
            if (type == Character.FORMAT || isIn(DECORATION, code)) {
                continue;  // a joiner inside a word does not cut it in two
            }
            if (type < Character.UPPERCASE_LETTER || type > Character.OTHER_NUMBER) {
                spaced.append(' ');
            } else if (isIn(UNSPACED, code)) {
                spaced.append(' ').appendCodePoint(code).append(' ');
            } else {
                spaced.appendCodePoint(code);
            }
        }
        List<String> words = new ArrayList<>();
        for (String word : spaced.toString().split(" ")) {
            if (!word.isEmpty()) {
                words.add(word);
            }
        }
        return words;
    }

    private static boolean isIn(int[][] ranges, int code) {
        for (int[] range : ranges) {
            if (range[0] <= code && code <= range[1]) {
                return true;
            }
        }
        return false;
    }

    private static String phrase(List<String> words) {
        StringBuilder phrase = new StringBuilder();
        for (String word : words) {
            phrase.append(phrase.length() > 0 ? " " : "").append(word);
        }
        return phrase.toString();
    }

    private static String[] lines(String text) {
        String[] lines = LINE_END.split(text, -1);
        // After the last line end there is no line.
        return lines[lines.length - 1].isEmpty() ? Arrays.copyOf(lines, lines.length - 1) : lines;
    }

    private String hash(String phrase) {
        MessageDigest digest = sha256();
        digest.update(salt);
        return Blocklist.toHex(digest.digest(phrase.getBytes(StandardCharsets.UTF_8))).substring(0, 2 * HASH_BYTES);
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java and every Android has SHA-256", error);
        }
    }

    static String toHex(byte[] bytes) {
        StringBuilder hex = new StringBuilder(2 * bytes.length);
        for (byte value : bytes) {
            hex.append(Character.forDigit(value >> 4 & 15, 16)).append(Character.forDigit(value & 15, 16));
        }
        return hex.toString();
    }

    private static byte[] fromHex(String hex) {
        if (!SALT.matcher(hex).matches()) {
            throw new IllegalArgumentException("line 1");
        }
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }
}
