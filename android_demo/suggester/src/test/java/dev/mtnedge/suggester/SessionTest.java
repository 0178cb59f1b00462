package dev.mtnedge.suggester;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** What a session keeps, how a request ends, what a closed suggester says. */
public class SessionTest {
    private Suggester suggester;

    @Before
    public void open() throws SuggesterException {
        suggester = Suggester.open(Fixtures.source("bundle"));
    }

    @After
    public void close() {
        if (suggester != null) {
            suggester.close();
        }
    }

    @Test
    public void queriesAreKeptInNormalFormAndEmptyOnesAreLeftOut() throws SuggesterException {
        Session session = suggester.session();
        for (String query : Arrays.asList("New  York", "", " \t", "ＡＯＬ")) {
            session.append(query);
        }
        assertEquals(Arrays.asList("new york", "aol"), session.queries());
        assertThrows(SuggesterException.class, () -> session.append("a\ud800"));
        assertEquals(Arrays.asList("new york", "aol"), session.queries());
        session.begin();
        assertEquals(Collections.emptyList(), session.queries());
        assertEquals(texts(suggester.session().suggest("n", 8)), texts(session.suggest("n", 8)));
    }

    @Test
    public void aLongSessionForgetsItsOldestQueriesOnly() throws SuggesterException {
        Session grown = suggester.session();
        List<String> queries = Arrays.asList("news", "york", "hotels", "menu", "jobs", "party");
        for (String query : queries) {
            grown.append(query);
        }
        Session kept = suggester.session();
        for (String query : queries.subList(2, 6)) {
            kept.append(query);
        }
        assertEquals(texts(kept.suggest("n", 8)), texts(grown.suggest("n", 8)));
    }

    @Test
    public void textThatIsNoTextAndTextBeyondReachGetAnHonestList() throws SuggesterException {
        Session session = suggester.session();
        assertEquals(Reason.UNREADABLE, session.suggest("new \udfff", 8).reason());
        assertEquals(Reason.UNREADABLE, session.suggest("new\0york", 8).reason());
        assertEquals(Reason.NOTHING_ASKED, session.suggest("new", 0).reason());
        assertEquals(Reason.FEW_ALLOWED, session.suggest(Request.of("", Integer.MAX_VALUE).minProbability(0)).reason());
        assertEquals(Reason.DENIED, session.suggest("SEX ", 8).reason());
        assertEquals(Reason.TOO_LONG, session.suggest(new String(new char[60]).replace("\0", "ю"), 8).reason());
        assertEquals(Reason.TOO_LONG, session.suggest(new String(new char[5000]).replace("\0", "ю"), 8).reason());
        // Whose normal form takes many seconds: it is not made.
        String marks = "e" + new String(new char[500_000]).replace("\0", "\u0301\u0323");
        assertEquals(Reason.TOO_LONG, session.suggest(Request.of(marks, 8).within(60_000)).reason());
    }

    @Test
    public void wordsOfTheAppAreDeniedToo() throws SuggesterException {
        Suggester.Options options = new Suggester.Options().deny(Collections.singletonList("Newspaper"));
        try (Suggester own = Suggester.open(Fixtures.source("bundle"), options)) {
            assertEquals(Reason.DENIED, own.session().suggest("newspaper ", 8).reason());
            assertFalse(texts(own.session().suggest("new", 50)).contains("newspaper"));
            assertTrue(texts(suggester.session().suggest("new", 50)).contains("newspaper"));
        }
    }

    @Test
    public void aDeadlineThatPassedGivesThePopularQueries() throws SuggesterException {
        SuggestResult result = suggester.session().suggest(Request.of("new", 3).within(0));
        assertEquals(Reason.TOO_LATE, result.reason());
        assertEquals(Arrays.asList("new york hotels", "new york", "news today"), texts(result));
        assertNull(suggester.session().suggest(Request.of("new", 3).within(60_000)).reason());
    }

    @Test
    public void aRunThatIsEndedAnywhereLeavesTheNextOneAsItIs() throws Exception {
        Session session = suggester.session();
        List<String> right = texts(session.suggest(Request.of("n", 64).minProbability(0)));
        Random random = new Random(1);
        for (int round = 0; round < 60; round++) {
            Call call = new Call();
            long pause = random.nextInt(4_000_000);
            Thread other = new Thread(() -> {
                long until = System.nanoTime() + pause;
                while (System.nanoTime() < until) {
                    Thread.yield();
                }
                call.end(Reason.STALE);
            });
            other.start();
            SuggestResult result = session.suggest(Request.of("n", 64).minProbability(0), call);
            other.join();
            if (result.reason() != Reason.STALE) {
                assertEquals(right, texts(result));
            }
        }
        assertEquals(right, texts(session.suggest(Request.of("n", 64).minProbability(0))));
    }

    @Test
    public void aDeadlineEndsARunThatWouldNeverEnd() throws SuggesterException {
        try (Suggester endless = Suggester.open(Fixtures.source("endless"))) {
            SuggestResult result = endless.session().suggest(Request.of("new", 12).within(20));
            assertEquals(Reason.TOO_LATE, result.reason());
            assertEquals("new york hotels", texts(result).get(0));
            assertEquals(8, endless.session().suggest(Request.of("new", 8).within(60_000)).suggestions().size());
        }
    }

    @Test
    public void closingEndsARunThatWouldNeverEnd() throws Exception {
        Suggester endless = Suggester.open(Fixtures.source("endless"));
        BlockingQueue<Object> found = new LinkedBlockingQueue<>();
        Thread thread = new Thread(() -> {
            try {
                found.add(endless.session().suggest("new", 12).reason());
            } catch (SuggesterException error) {  // closed before it began
                found.add(error.code());
            }
        });
        thread.start();
        Thread.sleep(50);
        endless.close();
        assertTrue(Arrays.<Object>asList(Reason.STALE, "closed").contains(found.poll(60, TimeUnit.SECONDS)));
    }

    @Test
    public void aNewerKeyPressFromAnotherThreadEndsTheOlderOne() throws Exception {
        try (Suggester endless = Suggester.open(Fixtures.source("endless"))) {
            Session session = endless.session();
            BlockingQueue<Object> found = new LinkedBlockingQueue<>();
            Thread thread = new Thread(() -> {
                try {
                    found.add(session.suggest("new", 12).reason());
                } catch (SuggesterException error) {
                    found.add(error);
                }
            });
            thread.start();
            while (found.isEmpty()) {  // until the older one has begun
                assertTrue(session.suggest("new y", 1).suggestions().size() == 1);
            }
            assertEquals(Reason.STALE, found.poll());
        }
    }

    @Test
    public void eightThreadsGetWhatOneGets() throws Exception {
        List<String> typed = Arrays.asList("", "n", "new ", "res", "東", "zz", "NEWS");
        List<List<String>> right = new ArrayList<>();
        for (String text : typed) {
            right.add(texts(suggester.session().suggest(text, 6)));
        }
        List<Throwable> wrong = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 8; number++) {
            int first = number;
            threads.add(new Thread(() -> {
                try {
                    for (int round = 0; round < 14; round++) {
                        int at = (first + round) % typed.size();
                        assertEquals(right.get(at), texts(suggester.session().suggest(typed.get(at), 6)));
                    }
                } catch (SuggesterException | AssertionError error) {
                    wrong.add(error);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(Collections.emptyList(), wrong);
    }

    @Test
    public void aClosedSuggesterSaysSo() throws SuggesterException {
        Session session = suggester.session();
        suggester.close();
        suggester.close();
        for (Request request : Arrays.asList(Request.of("new", 3), Request.of("new", 3).within(50))) {
            assertEquals("closed", assertThrows(SuggesterException.class, () -> session.suggest(request)).code());
        }
        assertEquals("closed", assertThrows(SuggesterException.class, () -> session.append("new")).code());
    }

    @Test
    public void numbersOutOfRangeAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> Request.of("new", -1));
        assertThrows(IllegalArgumentException.class, () -> Request.of("new", 1).within(Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> Request.of("new", 1).minProbability(1));
        assertThrows(IllegalArgumentException.class, () -> new Suggester.Options().threads(0));
    }

    private static List<String> texts(SuggestResult result) {
        List<String> texts = new ArrayList<>();
        for (Suggestion suggestion : result.suggestions()) {
            texts.add(suggestion.text());
        }
        return texts;
    }
}
