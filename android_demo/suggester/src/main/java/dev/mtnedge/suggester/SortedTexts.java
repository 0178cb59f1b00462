package dev.mtnedge.suggester;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;

/**
 * Texts in their order, front-coded, read from a buffer as it lies there (the format: {@code
 * mtn_edge/runtime/sorted_texts.py}). A place is a text's number in the order.
 */
final class SortedTexts {
    private static final int BLOCK = 16;
    /** The order of UTF-8 bytes, which is that of code points too. */
    static final Comparator<byte[]> BY_BYTES = SortedTexts::compare;

    private final int count;
    private final int blocks;
    private final ByteBuffer raw;

    /**
     * @param raw where each block starts, and the blocks.
     * @param count how many texts there are.
     * @throws IllegalArgumentException {@code raw} is something else.
     */
    SortedTexts(ByteBuffer raw, int count) {
        this.raw = raw.slice().order(ByteOrder.LITTLE_ENDIAN);
        this.count = count;
        blocks = (int) ((count + (long) BLOCK - 1) / BLOCK);
        int end = this.raw.limit() - 4 * blocks;
        if (blocks == 0 ? end != 0 : end < 1 || this.raw.getInt(0) != 0) {
            throw new IllegalArgumentException("no blocks");
        }
        for (int block = 0; block < blocks; block++) {
            int next = block + 1 < blocks ? this.raw.getInt(4 * (block + 1)) : end;
            if (next <= this.raw.getInt(4 * block) || next > end) {
                throw new IllegalArgumentException("a block has no start");
            }
        }
    }

    int size() {
        return count;
    }

    String get(int place) {
        Cursor cursor = new Cursor(place / BLOCK);
        for (int steps = place % BLOCK; steps >= 0; steps--) {
            cursor.next();
        }
        return new String(cursor.text, 0, cursor.length, StandardCharsets.UTF_8);
    }

    /** The place of the first text from {@code first} on that is not below {@code sought}; {@code last} for none. */
    int place(byte[] sought, int first, int last) {
        if (first >= last) {
            return first;
        }
        int low = first / BLOCK + 1;
        int high = (last - 1) / BLOCK + 1;
        while (low < high) {  // the first block that begins at `sought` or after it
            int middle = (low + high) >>> 1;
            Cursor head = new Cursor(middle);
            head.next();
            if (head.compareTo(sought) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        int place = (low - 1) * BLOCK;
        int end = Math.min(place + BLOCK, count);
        for (Cursor cursor = new Cursor(low - 1); place < end; place++) {
            cursor.next();
            if (cursor.compareTo(sought) >= 0) {
                break;
            }
        }
        return Math.min(Math.max(place, first), last);
    }

    static int compare(byte[] one, byte[] other) {
        return compare(one, one.length, other);
    }

    private static int compare(byte[] one, int length, byte[] other) {
        int shorter = Math.min(length, other.length);
        for (int at = 0; at < shorter; at++) {
            if (one[at] != other[at]) {
                return (one[at] & 0xFF) - (other[at] & 0xFF);
            }
        }
        return length - other.length;
    }

    /** Reads one block's texts after each other. */
    private final class Cursor {
        private byte[] text = new byte[64];
        private int length;
        private int at;

        Cursor(int block) {
            at = 4 * blocks + raw.getInt(4 * block);
        }

        void next() {
            int shared = number();
            int rest = number();
            if (shared < 0 || shared > length || rest < 0 || rest > raw.limit() - at) {
                throw new IndexOutOfBoundsException("a text leaves its list");
            }
            length = shared + rest;
            if (length > text.length) {
                text = Arrays.copyOf(text, 2 * length);
            }
            for (int to = shared; to < length; to++) {
                text[to] = raw.get(at++);
            }
        }

        int compareTo(byte[] sought) {
            return compare(text, length, sought);
        }

        /** A number, 7 bits in each byte, the lowest first. */
        private int number() {
            int number = 0;
            for (int shift = 0;; shift += 7) {
                byte part = raw.get(at++);
                number |= (part & 127) << shift;
                if (part >= 0) {
                    return number;
                }
            }
        }
    }
}
