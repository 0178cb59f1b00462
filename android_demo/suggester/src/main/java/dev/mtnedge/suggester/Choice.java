package dev.mtnedge.suggester;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The list of one key press as it grows: no echo, no twins, nothing that is denied, {@code k} at most. */
final class Choice {
    final List<Suggestion> suggestions = new ArrayList<>();
    /** Whether the block list kept anything out. */
    boolean denied;
    private final String typed;
    private final String prefix;
    private final int k;
    private final List<Blocklist> blocklists;
    private final Set<String> taken = new HashSet<>();

    Choice(String typed, String prefix, int k, List<Blocklist> blocklists) {
        this.typed = typed;
        this.prefix = prefix;
        this.k = k;
        this.blocklists = blocklists;
        taken.add(Text.fold(prefix));
    }

    boolean isFull() {
        return suggestions.size() == k;
    }

    /** Takes {@code query}, in normal form; what was typed stays in it as it was typed. */
    void add(String query, double score, Suggestion.Source source) {
        if (isFull()) {
            return;
        }
        String twin = Text.fold(query);
        if (!taken.add(twin)) {
            return;
        }
        if (denies(blocklists, twin)) {
            denied = true;
        } else {
            suggestions.add(new Suggestion(typed + query.substring(prefix.length()), score, source));
        }
    }

    static boolean denies(List<Blocklist> blocklists, String text) {
        for (Blocklist blocklist : blocklists) {
            if (blocklist.denies(text)) {
                return true;
            }
        }
        return false;
    }
}
