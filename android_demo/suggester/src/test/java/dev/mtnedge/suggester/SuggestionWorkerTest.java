package dev.mtnedge.suggester;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.Test;

/** Nothing waits for the model, nothing stale is delivered, nothing is left behind. */
public class SuggestionWorkerTest {
    /** Keeps what comes. */
    private static final class Kept implements SuggestionWorker.Callback {
        final BlockingQueue<Object> all = new LinkedBlockingQueue<>();

        @Override
        public void onSuggestions(SuggestResult result) {
            all.add(result);
        }

        @Override
        public void onFault(SuggesterException fault) {
            all.add(fault);
        }

        Object next() throws InterruptedException {
            return all.poll(60, TimeUnit.SECONDS);
        }
    }

    private final Kept kept = new Kept();

    private SuggestionWorker open() {
        BundleSource source = Fixtures.source("bundle");
        return new SuggestionWorker(() -> Suggester.open(source), Runnable::run);
    }

    @Test
    public void aRequestIsAnsweredWithTheQueriesBeforeIt() throws Exception {
        SuggestionWorker worker = open();
        for (String query : Arrays.asList("new york", "a\ud800", "jobs")) {
            worker.append(query);
        }
        worker.request("n", 5, kept);
        Session session;
        List<String> right;
        try (Suggester suggester = Suggester.open(Fixtures.source("bundle"))) {
            session = suggester.session();
            session.append("new york");
            session.append("jobs");
            right = lines(session.suggest("n", 5));
        }
        assertEquals(right, lines((SuggestResult) kept.next()));
        worker.begin();
        worker.request("", 3, kept);
        assertEquals("", ((SuggestResult) kept.next()).typed());
        worker.close();
        assertEnds(worker);
    }

    @Test
    public void onlyTheNewestKeyPressIsAnswered() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        BundleSource source = Fixtures.source("bundle");
        SuggestionWorker worker = new SuggestionWorker(() -> {
            await(gate);  // a bundle that takes its time
            return Suggester.open(source);
        }, Runnable::run);
        for (String typed : Arrays.asList("n", "ne", "new", "new ", "new y")) {
            worker.request(typed, 5, kept);
        }
        gate.countDown();
        assertEquals("new y", ((SuggestResult) kept.next()).typed());
        worker.close();
        assertEnds(worker);
        assertNull(kept.all.poll());
    }

    @Test
    public void aRunThatWouldNeverEndIsOvertaken() throws Exception {
        BundleSource source = Fixtures.source("endless");
        SuggestionWorker worker = new SuggestionWorker(() -> Suggester.open(source), Runnable::run);
        for (int round = 0; round < 5; round++) {
            worker.request("n", 12, kept);
            Thread.sleep(20);
            worker.request("new " + round, 1, kept);
            assertEquals("new " + round, ((SuggestResult) kept.next()).typed());
        }
        worker.request("n", 12, kept);
        Thread.sleep(20);
        worker.close();
        assertEnds(worker);
        assertNull(kept.all.poll());
    }

    @Test
    public void aRunAtWorkIsOvertaken() throws Exception {
        SuggestionWorker worker = open();
        worker.request("n", 5, kept);
        kept.next();
        for (int round = 0; round < 50; round++) {
            worker.request(Request.of("n", 64).minProbability(0), kept);
            Thread.sleep(round % 3);  // somewhere in the run
            worker.request("new " + round, 1, kept);
            Object found = kept.next();
            if (((SuggestResult) found).typed().equals("n")) {  // it was done before the newer one came
                assertTrue(((SuggestResult) found).reason() != Reason.STALE);
                found = kept.next();
            }
            assertEquals("new " + round, ((SuggestResult) found).typed());
        }
        worker.close();
        assertEnds(worker);
    }

    @Test
    public void anAnswerThatWasPostedButNotDeliveredYetIsDroppedToo() throws Exception {
        BundleSource source = Fixtures.source("bundle");
        BlockingQueue<Runnable> posted = new LinkedBlockingQueue<>();
        SuggestionWorker worker = new SuggestionWorker(() -> Suggester.open(source), posted::add);
        worker.request("n", 5, kept);
        Runnable stale = posted.poll(60, TimeUnit.SECONDS);
        worker.request("ne", 5, kept);
        stale.run();
        assertNull(kept.all.poll());
        posted.poll(60, TimeUnit.SECONDS).run();
        assertEquals("ne", ((SuggestResult) kept.all.poll()).typed());
        worker.request("new", 5, kept);
        Runnable cancelled = posted.poll(60, TimeUnit.SECONDS);
        worker.cancel();
        cancelled.run();
        assertNull(kept.all.poll());
        worker.close();
        assertEnds(worker);
    }

    @Test
    public void aBundleThatCannotBeOpenedIsToldToEveryRequest() throws Exception {
        SuggestionWorker worker = new SuggestionWorker(
                () -> Suggester.open(name -> { throw new java.io.IOException(name); }), Runnable::run);
        worker.append("new york");
        for (int round = 0; round < 2; round++) {
            worker.request("n", 5, kept);
            assertEquals("no-manifest", ((SuggesterException) kept.next()).code());
        }
        worker.close();
        assertEnds(worker);
    }

    @Test
    public void anExecutorThatIsShutDownEndsNothing() throws Exception {
        BundleSource source = Fixtures.source("bundle");
        boolean[] down = {true};
        SuggestionWorker worker = new SuggestionWorker(() -> Suggester.open(source), work -> {
            if (down[0]) {
                down[0] = false;
                throw new java.util.concurrent.RejectedExecutionException();
            }
            work.run();
        });
        while (kept.all.isEmpty()) {
            worker.request("n", 5, kept);
            Thread.sleep(20);
        }
        assertEquals("n", ((SuggestResult) kept.next()).typed());
        worker.close();
        assertEnds(worker);
    }

    @Test
    public void closingInTheMiddleOfARunEndsEverything() throws Exception {
        for (int round = 0; round < 8; round++) {
            SuggestionWorker worker = open();
            if (round > 0) {
                worker.request("n", 5, kept);
                kept.next();
            }
            worker.append("new york");
            worker.request(Request.of("n", 64).minProbability(0), kept);
            Thread.sleep(round % 4);
            worker.close();
            worker.request("n", 5, kept);
            assertEnds(worker);
            kept.all.clear();
        }
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            assertFalse(thread.getName(), thread.getName().equals("mtn-edge suggestions"));
        }
    }

    private static void assertEnds(SuggestionWorker worker) throws InterruptedException {
        worker.thread.join(60_000);
        assertFalse(worker.thread.isAlive());
    }

    private static void await(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static List<String> lines(SuggestResult result) {
        List<String> lines = new ArrayList<>(Collections.singletonList(String.valueOf(result.reason())));
        for (Suggestion suggestion : result.suggestions()) {
            lines.add(suggestion.toString());
        }
        return lines;
    }
}
