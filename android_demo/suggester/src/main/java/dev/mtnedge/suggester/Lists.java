package dev.mtnedge.suggester;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the log knows by heart, mixed into the model's list (in Python: {@code mtn_edge/runtime/lists.py}). */
final class Lists {
    static final String FOLLOWERS = "followers.list";
    /** Stands between a query and its follower; no query in normal form holds one. */
    private static final String BETWEEN = "\t";

    private Lists() {}

    /** How much the lists count. */
    static final class Mixing {
        final double popular;
        final double followers;
        final double doubt;

        Mixing(double popular, double followers, double doubt) {
            this.popular = popular;
            this.followers = followers;
            this.doubt = doubt;
        }

        boolean isSound() {
            return 0 <= popular && popular < 1 && 0 <= followers && followers < 1
                    && 0 < doubt && doubt < Double.POSITIVE_INFINITY;
        }

        boolean isOff() {
            return popular == 0 && followers == 0;
        }
    }

    /** What a list offers under a typed text. */
    static final class Offer {
        final List<Completions.Entry> entries;
        /** The sum of the counts of all that it holds there. */
        final long total;

        Offer(List<Completions.Entry> entries, long total) {
            this.entries = entries;
            this.total = total;
        }
    }

    /** A whole query, its log-probability, and who gave most of it. */
    static final class Scored {
        final String text;
        final double score;
        final Suggestion.Source source;

        Scored(String text, double score, Suggestion.Source source) {
            this.text = text;
            this.score = score;
            this.source = source;
        }
    }

    /** The best {@code k} popular queries under a typed text in normal form, but for that text itself. */
    static Offer popular(Completions completions, String prefix, int k) {
        return longer(completions, "", prefix, k);
    }

    /** The best {@code k} followers of the query {@code last} that begin with {@code prefix}. */
    static Offer followers(Completions followers, String last, String prefix, int k) {
        return longer(followers, last + BETWEEN, prefix, k);
    }

    private static Offer longer(Completions completions, String before, String prefix, int k) {
        long total = completions.weight(before + prefix);
        List<Completions.Entry> entries = new ArrayList<>();
        for (Completions.Entry entry : completions.top(before + prefix, k + 1)) {
            if (entry.query.length() == before.length() + prefix.length()) {
                total -= entry.count;
            } else if (entries.size() < k) {
                entries.add(new Completions.Entry(entry.query.substring(before.length()), entry.count));
            }
        }
        return new Offer(entries, total);
    }

    /** All that is offered, best first, equal ones by their texts. */
    static List<Scored> mix(Map<String, Double> model, Offer popular, Offer followers, Mixing mixing) {
        double trust = followers.total > 0
                ? mixing.followers * followers.total / (followers.total + mixing.doubt) : 0;
        double share = popular.total > 0 ? mixing.popular : 0;
        Map<String, Double> own = new HashMap<>();
        for (Map.Entry<String, Double> entry : model.entrySet()) {
            own.put(entry.getKey(), (1 - trust) * (1 - share) * Math.exp(entry.getValue()));
        }
        Map<String, Double> listed = new HashMap<>();
        add(listed, popular, (1 - trust) * share);
        add(listed, followers, trust);
        Set<String> texts = new LinkedHashSet<>(own.keySet());
        texts.addAll(listed.keySet());
        List<Scored> whole = new ArrayList<>();
        for (String text : texts) {
            double mine = own.getOrDefault(text, 0.0);
            double theirs = listed.getOrDefault(text, 0.0);
            if (mine + theirs > 0) {
                whole.add(new Scored(text, Math.log(mine + theirs),
                        mine >= theirs ? Suggestion.Source.MODEL : Suggestion.Source.COMPLETIONS));
            }
        }
        whole.sort((one, other) -> one.score != other.score
                ? Double.compare(other.score, one.score) : Text.compare(one.text, other.text));
        return whole;
    }

    private static void add(Map<String, Double> listed, Offer offer, double weight) {
        if (weight > 0) {
            for (Completions.Entry entry : offer.entries) {
                double part = weight * entry.count / offer.total;
                listed.put(entry.query, listed.getOrDefault(entry.query, 0.0) + part);
            }
        }
    }
}
