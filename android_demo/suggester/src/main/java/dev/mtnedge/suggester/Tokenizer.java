package dev.mtnedge.suggester;

import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonArray;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Byte-level BPE from a {@code tokenizer.json}: every text is encodable, and every encoding gives back the same text.
 *
 * <p>Token numbers 0, 1 and 2 are {@code <pad>}, {@code <bos>} and {@code <eos>}; single bytes and merges follow.
 */
final class Tokenizer {
    static final int BOS = 1;
    static final int EOS = 2;
    private static final String[] SPECIALS = {"<pad>", "<bos>", "<eos>"};
    /** Pieces of a text that no token reaches across (GPT-2); the only blank of the normal form is the space. */
    private static final Pattern PIECES = Pattern.compile(
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^ \\p{L}\\p{N}]+| +(?![^ ])| +");
    private static final int NEVER = Integer.MAX_VALUE;

    /** The UTF-8 bytes of each token; none for the specials. */
    final byte[][] tokenBytes;
    private final int[] tokenOfByte = new int[256];
    /** From two token numbers to the rank of their merge. */
    private final Map<Long, Integer> ranks;
    /** What each merge makes. */
    private final int[] merged;

    private Tokenizer(JsonObject vocabulary, JsonArray merges) {
        int[] bytes = bytesOfLetters();
        tokenBytes = new byte[vocabulary.size()][];
        Map<String, Integer> numbers = new HashMap<>(2 * vocabulary.size());
        for (JsonObject.Member member : vocabulary) {
            int number = member.getValue().asInt();
            require(tokenBytes[number] == null);
            tokenBytes[number] = number < SPECIALS.length ? new byte[0] : spelt(member.getName(), bytes);
            require(number >= SPECIALS.length || SPECIALS[number].equals(member.getName()));
            numbers.put(member.getName(), number);
        }
        Arrays.fill(tokenOfByte, -1);
        for (int number = 0; number < tokenBytes.length; number++) {
            if (tokenBytes[number].length == 1) {
                tokenOfByte[tokenBytes[number][0] & 0xFF] = number;
            }
        }
        for (int number : tokenOfByte) {
            require(number >= 0);
        }
        ranks = new HashMap<>(2 * merges.size());
        merged = new int[merges.size()];
        for (int rank = 0; rank < merged.length; rank++) {
            JsonArray pair = merges.get(rank).asArray();
            String left = pair.get(0).asString();
            String right = pair.get(1).asString();
            merged[rank] = numbers.get(left + right);
            ranks.put(key(numbers.get(left), numbers.get(right)), rank);
        }
    }

    /**
     * Reads a {@code tokenizer.json}.
     *
     * @throws SuggesterException it is not a tokenizer of this kind.
     */
    static Tokenizer read(String json) throws SuggesterException {
        try {
            JsonObject document = Json.parse(json).asObject();
            JsonObject splitting = document.get("pre_tokenizer").asObject();
            JsonObject model = document.get("model").asObject();
            require(isNull(document.get("normalizer")) && document.get("added_tokens").asArray().isEmpty());
            require(splitting.getString("type", "").equals("ByteLevel") && model.getString("type", "").equals("BPE"));
            require(!splitting.getBoolean("add_prefix_space", true) && splitting.getBoolean("use_regex", true));
            return new Tokenizer(model.get("vocab").asObject(), model.get("merges").asArray());
        } catch (RuntimeException error) {  // of the parser, of a missing or misplaced value
            throw new SuggesterException("bad-tokenizer",
                    "`tokenizer.json` is not a byte-level BPE tokenizer that starts with <pad>, <bos>, <eos>;"
                            + " make the bundle again", error);
        }
    }

    /** Token numbers of a text in normal form, without specials. */
    int[] encode(String text) {
        int[] tokens = new int[16];
        int count = 0;
        Matcher pieces = PIECES.matcher(text);
        while (pieces.find()) {
            int[] piece = merge(pieces.group().getBytes(StandardCharsets.UTF_8));
            if (count + piece.length > tokens.length) {
                tokens = Arrays.copyOf(tokens, 2 * (count + piece.length));
            }
            System.arraycopy(piece, 0, tokens, count, piece.length);
            count += piece.length;
        }
        return Arrays.copyOf(tokens, count);
    }

    /** Merges neighbours, the pair that was learnt first before others, the leftmost of equal ones. */
    private int[] merge(byte[] spelt) {
        int count = spelt.length;
        int[] tokens = new int[count];
        for (int at = 0; at < count; at++) {
            tokens[at] = tokenOfByte[spelt[at] & 0xFF];
        }
        int[] rank = new int[count];  // of each token with the next one
        for (int at = 0; at < count; at++) {
            rank[at] = at + 1 < count ? rank(tokens[at], tokens[at + 1]) : NEVER;
        }
        while (true) {
            int best = 0;
            for (int at = 1; at < count; at++) {
                if (rank[at] < rank[best]) {
                    best = at;
                }
            }
            if (count == 0 || rank[best] == NEVER) {
                return Arrays.copyOf(tokens, count);
            }
            tokens[best] = merged[rank[best]];
            count--;
            System.arraycopy(tokens, best + 2, tokens, best + 1, count - best - 1);
            System.arraycopy(rank, best + 2, rank, best + 1, count - best - 1);
            rank[best] = best + 1 < count ? rank(tokens[best], tokens[best + 1]) : NEVER;
            if (best > 0) {
                rank[best - 1] = rank(tokens[best - 1], tokens[best]);
            }
        }
    }

    private int rank(int left, int right) {
        Integer rank = ranks.get(key(left, right));
        return rank == null ? NEVER : rank;
    }

    private static Long key(int left, int right) {
        return (long) left << 32 | right;
    }

    private static byte[] spelt(String name, int[] bytes) {
        byte[] spelt = new byte[name.length()];
        require(spelt.length > 0);
        for (int at = 0; at < spelt.length; at++) {
            int value = name.charAt(at) < bytes.length ? bytes[name.charAt(at)] : -1;
            require(value >= 0);
            spelt[at] = (byte) value;
        }
        return spelt;
    }

    /** The byte for which each printable letter stands in such a file (the table of GPT-2); -1 for none. */
    private static int[] bytesOfLetters() {
        int[] bytes = new int[512];
        Arrays.fill(bytes, -1);
        int others = 0;
        for (int value = 0; value < 256; value++) {
            boolean printable = value >= 0x21 && value < 0x7F || value >= 0xA1 && value != 0xAD;
            bytes[printable ? value : 256 + others++] = value;
        }
        return bytes;
    }

    private static boolean isNull(JsonValue value) {
        return value == null || value.isNull();
    }

    private static void require(boolean holds) {
        if (!holds) {
            throw new IllegalArgumentException();
        }
    }
}
