package dev.mtnedge.suggester;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Queries with counts, the most frequent ones under a prefix first, equal counts in the order of their texts (the
 * format: {@code mtn_edge/runtime/completions.py}). Queries with equal counts form a group; groups are numbered from
 * the highest count down.
 */
final class Completions {
    static final String FILE = "completions.list";
    private static final byte[] MAGIC = "mtnlist2".getBytes(StandardCharsets.US_ASCII);
    private static final int HEADER = 20;
    /** A run of more than 1/32 of all places is picked from the ranked list; a shorter one is ranked by itself. */
    private static final int WIDE = 32;
    private static final byte AFTER_ALL = (byte) 0xFF;

    /** A query and its count. */
    static final class Entry {
        final String query;
        final long count;

        Entry(String query, long count) {
            this.query = query;
            this.count = count;
        }
    }

    /** The sum of all counts. */
    final long total;
    private final SortedTexts texts;
    /** The count of each group. */
    private final long[] counts;
    private final ByteBuffer groups;
    /** Bytes of a group's number. */
    private final int width;
    /** All places, best first. */
    private final int[] ranked;

    private Completions(ByteBuffer raw) {
        ByteBuffer file = raw.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at < MAGIC.length; at++) {
            require(file.get(4 + at) == MAGIC[at]);
        }
        int queries = file.getInt(12);
        int kinds = file.getInt(16);
        width = kinds <= 1 << 8 ? 1 : kinds <= 1 << 16 ? 2 : 4;
        long start = HEADER + 8L * kinds;
        require(queries >= 0 && kinds >= 0 && start + (long) width * queries <= file.limit());
        counts = new long[kinds];
        for (int group = 0; group < kinds; group++) {
            counts[group] = file.getLong(HEADER + 8 * group);
            require(counts[group] >= 1);
        }
        groups = part(file, (int) start, width * queries);
        int textsAt = (int) start + width * queries;
        texts = new SortedTexts(part(file, textsAt, file.limit() - textsAt), queries);
        int[] ends = new int[kinds + 1];  // by group: how many queries are in the groups before it
        long sum = 0;
        for (int place = 0; place < queries; place++) {
            int group = group(place);
            require(group >= 0 && group < kinds);
            ends[group + 1]++;
            sum += counts[group];
        }
        total = sum;
        for (int group = 0; group < kinds; group++) {
            ends[group + 1] += ends[group];
        }
        ranked = new int[queries];
        for (int place = 0; place < queries; place++) {
            ranked[ends[group(place)]++] = place;
        }
    }

    /**
     * Reads a list; the buffer is used as it is. The manifest's sha256 stands for the checksum in the file.
     *
     * @throws SuggesterException it is something else, or damaged.
     */
    static Completions read(String name, ByteBuffer raw) throws SuggesterException {
        try {
            return new Completions(raw);
        } catch (RuntimeException error) {  // of the buffer, or of what must hold
            throw new SuggesterException("bad-completions",
                    "`" + name + "` is not a list of popular queries, or it is damaged; make the bundle again", error);
        }
    }

    /** The {@code k} most frequent queries that begin with {@code prefix}, best first. */
    List<Entry> top(String prefix, int k) {
        int[] run = run(prefix);
        List<Entry> best = new ArrayList<>();
        if ((run[1] - run[0]) * (long) WIDE <= texts.size()) {
            long[] keys = new long[run[1] - run[0]];
            for (int at = 0; at < keys.length; at++) {
                keys[at] = (long) group(run[0] + at) << 32 | run[0] + at;
            }
            Arrays.sort(keys);
            for (int at = 0; at < keys.length && best.size() < k; at++) {
                best.add(entry((int) keys[at]));
            }
        } else {
            for (int at = 0; at < ranked.length && best.size() < k; at++) {
                if (ranked[at] >= run[0] && ranked[at] < run[1]) {
                    best.add(entry(ranked[at]));
                }
            }
        }
        return best;
    }

    /** The sum of the counts of all queries that begin with {@code prefix}. */
    long weight(String prefix) {
        if (prefix.isEmpty()) {
            return total;
        }
        int[] run = run(prefix);
        long sum = 0;
        for (int place = run[0]; place < run[1]; place++) {
            sum += counts[group(place)];
        }
        return sum;
    }

    /** The places of the queries that begin with {@code prefix}: the first, and one after the last. */
    private int[] run(String prefix) {
        byte[] beginning = prefix.getBytes(StandardCharsets.UTF_8);
        int first = texts.place(beginning, 0, texts.size());
        // No UTF-8 holds this byte: a beginning with it added comes after all texts that begin so.
        byte[] above = Arrays.copyOf(beginning, beginning.length + 1);
        above[beginning.length] = AFTER_ALL;
        return new int[] {first, texts.place(above, first, texts.size())};
    }

    private Entry entry(int place) {
        return new Entry(texts.get(place), counts[group(place)]);
    }

    private int group(int place) {
        return width == 1 ? groups.get(place) & 0xFF
                : width == 2 ? groups.getShort(2 * place) & 0xFFFF : groups.getInt(4 * place);
    }

    private static ByteBuffer part(ByteBuffer file, int start, int length) {
        ByteBuffer part = file.duplicate();
        part.position(start);
        part.limit(start + length);
        return part.slice().order(ByteOrder.LITTLE_ENDIAN);
    }

    private static void require(boolean holds) {
        if (!holds) {
            throw new IllegalArgumentException();
        }
    }
}
