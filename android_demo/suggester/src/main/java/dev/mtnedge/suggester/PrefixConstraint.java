package dev.mtnedge.suggester;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The typed text as a constraint on tokens: every output spells it, character for character, and more (in Python:
 * {@code mtn_edge/decoding/prefix_constraint.py}, where the idea is told).
 *
 * <p>Finished words are settled. The rest, from the last blank on, is a state table: free states 0 to 8 know UTF-8 and
 * blanks; from state 9 on there is one for each byte of the rest, and one for the typed text and nothing more.
 */
final class PrefixConstraint {
    private static final int FORBIDDEN = 0;
    private static final int MOST_STATES = 255;
    private static final int FREE = 0;
    private static final int SPACE = 1;
    /** How many free states there are. */
    private static final int STATES = 9;
    private static final int DEAD = STATES;
    /** The first and last byte of a character that begin so, and the state after them; later lines count. */
    private static final int[][] HEADS = {
        {0x21, 0x7E, FREE}, {0xC2, 0xDF, 2}, {0xE0, 0xEF, 3}, {0xE0, 0xE0, 5}, {0xED, 0xED, 6},
        {0xF0, 0xF0, 7}, {0xF1, 0xF3, 4}, {0xF4, 0xF4, 8},
    };
    /** State inside a character, the first and last byte that may come, and the state after them. */
    private static final int[][] TAILS = {
        {2, 0x80, 0xBF, FREE}, {3, 0x80, 0xBF, 2}, {4, 0x80, 0xBF, 3}, {5, 0xA0, 0xBF, 2}, {6, 0x80, 0x9F, 2},
        {7, 0x90, 0xBF, 3}, {8, 0x80, 0x8F, 3},
    };
    private static final int[][] AFTER_BYTE = afterByte();

    /** What a search must keep to. */
    static final class Constraint {
        /** {@code <bos>} and the tokens of what is settled. */
        final int[] startTokens;
        /** [S * V] the state after each token, and 1; 0 where it may not come. */
        final byte[] nextState;
        final int startState;

        Constraint(int[] startTokens, byte[] nextState, int startState) {
            this.startTokens = startTokens;
            this.nextState = nextState;
            this.startState = startState;
        }
    }

    private final Tokenizer tokenizer;
    /** The vocabulary without specials, in the order of the bytes, and what each token spells. */
    private final int[] numbers;
    private final byte[][] spelt;
    private final int longest;
    /** [STATES][V] the rows of the free states. */
    private final byte[][] free;

    PrefixConstraint(Tokenizer tokenizer) {
        this.tokenizer = tokenizer;
        List<Integer> order = new ArrayList<>();
        int most = 0;
        for (int number = 0; number < tokenizer.tokenBytes.length; number++) {
            most = Math.max(most, tokenizer.tokenBytes[number].length);
            if (tokenizer.tokenBytes[number].length > 0) {
                order.add(number);
            }
        }
        longest = most;
        order.sort((one, other) -> SortedTexts.compare(tokenizer.tokenBytes[one], tokenizer.tokenBytes[other]));
        numbers = new int[order.size()];
        spelt = new byte[numbers.length][];
        for (int at = 0; at < numbers.length; at++) {
            numbers[at] = order.get(at);
            spelt[at] = tokenizer.tokenBytes[numbers[at]];
        }
        free = freeRows(tokenizer.tokenBytes);
    }

    /**
     * The constraint whose outputs spell {@code prefix} and at least one character more, then {@code <eos>}.
     *
     * @param prefix the typed text in normal form.
     * @param most tokens that an output may have, with those that are settled and without {@code <eos>}.
     * @return null when {@code most} tokens cannot spell {@code prefix} and more, or its last word is longer than a
     *     table can hold.
     */
    Constraint typed(String prefix, int most) {
        if (utf8(prefix).length > longest * most) {
            return null;
        }
        String settled = settled(prefix);
        int[] tokens = tokenizer.encode(settled);
        byte[] rest = utf8(prefix.substring(settled.length()));
        if (tokens.length + rest.length >= most && !isReachable(rest, most - tokens.length)
                || STATES + 1 + rest.length > MOST_STATES) {
            return null;
        }
        int[] startTokens = new int[tokens.length + 1];
        startTokens[0] = Tokenizer.BOS;
        System.arraycopy(tokens, 0, startTokens, 1, tokens.length);
        return new Constraint(startTokens, table(rest, tokens.length > 0 ? FREE : SPACE), STATES);
    }

    /** The finished words of {@code prefix}: what stands before its last blank. */
    static String settled(String prefix) {
        return prefix.substring(0, Math.max(prefix.lastIndexOf(' '), 0));
    }

    /** The table for {@code rest}, which stands in state {@code before}; it starts in state {@code STATES}. */
    private byte[] table(byte[] rest, int before) {
        int width = tokenizer.tokenBytes.length;
        byte[] table = new byte[(STATES + rest.length + 1) * width];
        for (int state = 0; state < STATES; state++) {
            System.arraycopy(free[state], 0, table, state * width, width);
        }
        int state = before;  // of the bytes before `start`
        for (int start = 0; start < rest.length; start++) {
            int row = (STATES + start) * width;
            for (int stop = start + 1; stop <= Math.min(start + longest, rest.length); stop++) {
                int at = find(rest, start, stop);
                if (at >= 0) {
                    table[row + numbers[at]] = (byte) (1 + STATES + stop);
                }
            }
            for (int at = firstLonger(rest, start); at < numbers.length && goesOn(spelt[at], rest, start); at++) {
                table[row + numbers[at]] = free[state][numbers[at]];
            }
            state = AFTER_BYTE[state][rest[start] & 0xFF];
        }
        // The typed text and nothing more: going on is free, but to end here would be an echo.
        int last = (STATES + rest.length) * width;
        System.arraycopy(free[state], 0, table, last, width);
        table[last + Tokenizer.EOS] = FORBIDDEN;
        return table;
    }

    /** Whether {@code tokens} tokens can spell {@code rest} and more. */
    private boolean isReachable(byte[] rest, int tokens) {
        if (rest.length > longest * tokens) {
            return false;
        }
        int[] fewest = new int[rest.length + 1];
        Arrays.fill(fewest, 1, fewest.length, tokens + 1);
        for (int start = 0; start < rest.length; start++) {
            if (fewest[start] >= tokens) {
                continue;
            }
            for (int stop = start + 1; stop <= Math.min(start + longest, rest.length); stop++) {
                if (find(rest, start, stop) >= 0) {
                    fewest[stop] = Math.min(fewest[stop], fewest[start] + 1);
                }
            }
            int at = firstLonger(rest, start);
            if (at < numbers.length && goesOn(spelt[at], rest, start)) {
                return true;
            }
        }
        return fewest[rest.length] < tokens;
    }

    /** Where the token stands that spells {@code rest} from {@code start} to {@code stop}; negative when none does. */
    private int find(byte[] rest, int start, int stop) {
        return Arrays.binarySearch(spelt, Arrays.copyOfRange(rest, start, stop), SortedTexts.BY_BYTES);
    }

    /** Where the tokens stand that begin with {@code rest} from {@code start} and go on after it, if there are any. */
    private int firstLonger(byte[] rest, int start) {
        int at = find(rest, start, rest.length);
        return at >= 0 ? at + 1 : -at - 1;
    }

    private static boolean goesOn(byte[] token, byte[] rest, int start) {
        if (token.length <= rest.length - start) {
            return false;
        }
        for (int at = start; at < rest.length; at++) {
            if (token[at - start] != rest[at]) {
                return false;
            }
        }
        return true;
    }

    private static int[][] afterByte() {
        int[][] after = new int[STATES + 1][256];
        for (int[] row : after) {
            Arrays.fill(row, DEAD);
        }
        for (int[] head : HEADS) {
            Arrays.fill(after[FREE], head[0], head[1] + 1, head[2]);
            Arrays.fill(after[SPACE], head[0], head[1] + 1, head[2]);
        }
        after[FREE][' '] = SPACE;
        for (int[] tail : TAILS) {
            Arrays.fill(after[tail[0]], tail[1], tail[2] + 1, tail[3]);
        }
        return after;
    }

    private static byte[][] freeRows(byte[][] tokenBytes) {
        byte[][] rows = new byte[STATES][tokenBytes.length];
        for (int state = 0; state < STATES; state++) {
            for (int number = 0; number < tokenBytes.length; number++) {
                int after = tokenBytes[number].length > 0 ? state : DEAD;
                for (byte value : tokenBytes[number]) {
                    after = AFTER_BYTE[after][value & 0xFF];
                }
                rows[state][number] = (byte) (after == DEAD ? FORBIDDEN : after + 1);
            }
        }
        rows[FREE][Tokenizer.EOS] = 1 + FREE;
        return rows;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
