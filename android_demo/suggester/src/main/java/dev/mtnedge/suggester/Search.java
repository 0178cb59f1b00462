package dev.mtnedge.suggester;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** From a typed text to the endings that the model gives it (in Python: {@code mtn_edge/runtime/search.py}). */
final class Search {
    /** Hypotheses at most, however many suggestions are asked for. */
    private static final int WIDEST_BEAM = 64;

    /** A whole query that the model writes. */
    static final class Ending {
        final String text;
        /** Given the session and the typed text, summed over the segmentations that were found. */
        final double logProbability;
        /** How many tokens the search wrote for it, with {@code <eos>}. */
        final int tokens;

        Ending(String text, double logProbability, int tokens) {
            this.text = text;
            this.logProbability = logProbability;
            this.tokens = tokens;
        }
    }

    /** The endings of one typed text, best first. */
    static final class Found {
        final List<Ending> endings;
        /** Whether something was left out that was below the confidence floor. */
        final boolean doubtful;

        Found(List<Ending> endings, boolean doubtful) {
            this.endings = endings;
            this.doubtful = doubtful;
        }
    }

    private final Engine engine;
    private final Tokenizer tokenizer;
    private final PrefixConstraint constraint;
    private final Decoding decoding;

    Search(Engine engine, Tokenizer tokenizer, Decoding decoding) {
        this.engine = engine;
        this.tokenizer = tokenizer;
        this.decoding = decoding;
        constraint = new PrefixConstraint(tokenizer);
    }

    /**
     * What the model adds to a typed text.
     *
     * @param prefix the typed text in normal form.
     * @param least the confidence floor.
     * @return null when {@code prefix} is longer than the model can write.
     */
    Found endings(Map<String, Engine.Value> state, String prefix, int k, double least, Call call)
            throws SuggesterException, Call.Ended {
        PrefixConstraint.Constraint typed = constraint.typed(prefix, engine.maxTokens);
        if (typed == null) {
            return null;
        }
        double floor = least > 0 ? Math.log(least) : Engine.DEAD;
        int beam = Math.min(Math.max(decoding.beam, Math.min(k, WIDEST_BEAM)), engine.vocabSize);
        int steps = Math.min(decoding.maxSteps, engine.maxTokens + 2 - typed.startTokens.length);
        return read(engine.search(state, typed, beam, steps, floor, call), prefix, floor);
    }

    private Found read(Engine.Hypotheses hypotheses, String prefix, double floor) {
        byte[] settled = PrefixConstraint.settled(prefix).getBytes(StandardCharsets.UTF_8);
        Map<String, Ending> merged = new LinkedHashMap<>();
        boolean doubtful = false;
        for (int row = 0; row < hypotheses.tokens.length; row++) {
            double score = hypotheses.scores[row];
            if (score <= Engine.DEAD) {
                break;  // best first: what follows is dead too
            }
            int end = indexOf(hypotheses.tokens[row], Tokenizer.EOS);
            if (end < 0) {  // given up at the floor, or out of steps
                doubtful |= score <= hypotheses.mass + floor;
                continue;
            }
            String text = spelt(settled, hypotheses.tokens[row]);
            // A combining mark would change what was typed, and some marks and blanks are no normal form.
            if (!text.equals(Text.normalize(text))) {
                continue;
            }
            score -= hypotheses.mass;
            Ending known = merged.get(text);
            if (known != null) {  // the first segmentation is the most probable one, and its length counts
                score = known.logProbability + Math.log1p(Math.exp(score - known.logProbability));
            }
            merged.put(text, new Ending(text, score, known != null ? known.tokens : end + 1));
        }
        List<Ending> kept = new ArrayList<>();
        for (Ending ending : merged.values()) {
            if (ending.logProbability > floor) {
                kept.add(ending);
            } else {
                doubtful = true;
            }
        }
        kept.sort((one, other) -> rank(one) != rank(other)
                ? Double.compare(rank(other), rank(one)) : Text.compare(one.text, other.text));
        return new Found(kept, doubtful);
    }

    private double rank(Ending ending) {
        return ending.logProbability / Math.pow(ending.tokens, decoding.lengthNormalization);
    }

    private String spelt(byte[] settled, int[] tokens) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.write(settled, 0, settled.length);
        for (int token : tokens) {
            bytes.write(tokenizer.tokenBytes[token], 0, tokenizer.tokenBytes[token].length);
        }
        return new String(bytes.toByteArray(), StandardCharsets.UTF_8);
    }

    private static int indexOf(int[] tokens, int token) {
        for (int at = 0; at < tokens.length; at++) {
            if (tokens[at] == token) {
                return at;
            }
        }
        return -1;
    }
}
