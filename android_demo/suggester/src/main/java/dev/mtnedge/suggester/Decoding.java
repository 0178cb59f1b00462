package dev.mtnedge.suggester;

import com.eclipsesource.json.JsonArray;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;

/** How a bundle searches; the {@code decoding} section of its manifest. */
final class Decoding {
    private static final int HIGHEST_EXPONENT = 8;

    /** Hypotheses of a search; more when more suggestions are asked for. */
    final int beam;
    /** Tokens that a search writes at most, with {@code <eos>}. */
    final int maxSteps;
    /** Exponent of the length by which log-probabilities are divided for the ranking. */
    final double lengthNormalization;
    private final double floorComplete;
    private final double floorSuggest;
    private final Lists.Mixing mixComplete;
    private final Lists.Mixing mixSuggest;

    private Decoding(JsonObject section) {
        beam = section.get("beam").asInt();
        maxSteps = section.get("max_steps").asInt();
        lengthNormalization = section.get("length_normalization").asDouble();
        floorComplete = section.get("min_probability_complete").asDouble();
        floorSuggest = section.get("min_probability_suggest").asDouble();
        mixComplete = mixing(section.get("mix_complete").asArray());
        mixSuggest = mixing(section.get("mix_suggest").asArray());
    }

    static Decoding read(JsonValue section) throws SuggesterException {
        try {
            Decoding read = new Decoding(section.asObject());
            if (read.isSound()) {
                return read;
            }
        } catch (RuntimeException error) {  // of a missing or misplaced value
            throw bad(error);
        }
        throw bad(null);
    }

    /** The confidence floor for a typed text. */
    double minProbability(String prefix) {
        return prefix.isEmpty() ? floorSuggest : floorComplete;
    }

    /** How much the lists count for a typed text. */
    Lists.Mixing mixing(String prefix) {
        return prefix.isEmpty() ? mixSuggest : mixComplete;
    }

    private boolean isSound() {
        return beam >= 1 && maxSteps >= 1 && isShare(floorComplete) && isShare(floorSuggest)
                && 0 <= lengthNormalization && lengthNormalization <= HIGHEST_EXPONENT
                && mixComplete.isSound() && mixSuggest.isSound();
    }

    private static boolean isShare(double value) {
        return 0 <= value && value < 1;
    }

    private static Lists.Mixing mixing(JsonArray section) {
        return new Lists.Mixing(section.get(0).asDouble(), section.get(1).asDouble(), section.get(2).asDouble());
    }

    private static SuggesterException bad(Throwable cause) {
        return new SuggesterException("bad-manifest", "the `decoding` section of the manifest lacks a setting, or one"
                + " is out of range; make the bundle again", cause);
    }
}
